-- GCRA alone, and short: the twin of gcra.rs for requests of one charge each, under limits whose
-- debts are below 2^53 ticks of 1/64 ns (39 hours), so that a debt is one number. The same
-- values and the same answers as decide.lua with gcra.lua, in half the time.
--
-- KEYS      the keys, each once
-- ARGV[1]   microseconds since 1970, for tests; empty: the server's clock, read once
-- ARGV[..]  for each key: the limit, the deepest debt that is left, whether denials are
--           counted, then the price of each request in its order
-- Answers   the moment; then each value as it was found

local call, format, floor, sub = redis.call, string.format, math.floor, string.sub
local TURN, PAST, SLACK = 92000000000000, 10000000000000, 640000000000
local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local base = math.fmod(now, TURN)
local found = {now}
local after = {}
for i = 1, #KEYS do
  local value = call('GET', KEYS[i])
  found[i + 1] = value
  local pack = ARGV[i + 1]
  local limit, full, counted, price, at = struct.unpack('<dddd', pack)
  local debt, changed = 0, false
  if value then
    local micros = sub(value, 1, -6) - base
    if micros < -PAST then
      micros = micros + TURN
    elseif micros >= TURN - PAST then
      micros = micros - TURN
    end
    -- Not exact if it is beyond 2^53; then it is cut.
    if micros >= 0 then
      debt = micros * 64000 + sub(value, -5)
      if debt > full + SLACK then debt, changed = full, true end
    end
  end
  while true do
    if debt <= limit - price then
      if price > 0 then debt, changed = debt + price, true end
    elseif counted == 1 and debt < 2 * limit then
      debt, changed = math.min(debt + price, 2 * limit), true
    end
    if at > #pack then break end
    price, at = struct.unpack('<d', pack, at)
  end
  after[i] = changed and debt
end
for i = 1, #KEYS do
  local debt = after[i]
  if debt then
    local micros = floor(debt / 64000)
    local at = base + micros
    if at >= TURN then at = at - TURN end
    local value = format('%d%05d', at, debt - micros * 64000)
    call('SET', KEYS[i], value, 'PXAT', format('%d', floor((now + micros) / 1000) + 2))
  end
end
return found
