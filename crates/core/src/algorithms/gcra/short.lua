-- GCRA alone, and short: the twin of gcra.rs for requests of one charge each, under limits whose
-- debts are below 2^53 ticks of 1/64 ns (39 hours), so that a debt is one number. The same
-- values and the same answers as decide.lua with gcra.lua, in half the time.
--
-- KEYS      the keys, each once
-- ARGV[1]   microseconds since 1970, for tests; empty: the server's clock, read once
-- ARGV[..]  for each key: the limit, the deepest debt that is left, whether denials are
--           counted, then the price of each request in its order
-- ARGV[..]  if anything is: for each key the value that the caller remembers, or nothing
-- Answers   the moment; then each value as it was found, or as the caller remembers it

local call, format, sub, unpack = redis.call, string.format, string.sub, struct.unpack
local KEYS, ARGV = KEYS, ARGV
local TURN, PAST, SLACK = 92000000000000, 10000000000000, 640000000000
local now = ARGV[1]
if now == '' then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(now)
end
local base = now % TURN
local count = #KEYS
local found, after, lowered = {now}, {}, nil
for i = 1, count do
  local value = call('GET', KEYS[i])
  found[i + 1] = value
  local pack = ARGV[i + 1]
  local limit, full, counted, price, at = unpack('<dddd', pack)
  local debt, changed, low = 0, false, false
  if value then
    local micros = sub(value, 1, -6) + 0
    if micros < 0 then micros, low = -micros, true end -- moved back
    micros = micros - base
    if micros < -PAST then
      micros = micros + TURN
    elseif micros >= TURN - PAST then
      micros = micros - TURN
    end
    -- Not exact if it is beyond 2^53; then it is cut.
    if micros >= 0 then
      debt = micros * 64000 + sub(value, -5)
      if debt > full + SLACK then debt, changed, low = full, true, true end
    end
  end
  local hint = ARGV[i + 1 + count]
  if hint and hint ~= '' and not low then
    local micros = sub(hint, 1, -6) - base
    if micros < -PAST then
      micros = micros + TURN
    elseif micros >= TURN - PAST then
      micros = micros - TURN
    end
    local told = micros * 64000 + sub(hint, -5)
    if micros >= 0 and told > debt then
      debt, changed, found[i + 1] = told, true, hint
      if debt > full + SLACK then debt, low = full, true end
    end
  end
  while true do
    if debt <= limit - price then
      if price > 0 then debt, changed = debt + price, true end
    elseif counted == 1 and debt < 2 * limit then
      debt, changed = math.min(debt + price, 2 * limit), true
    end
    if at > #pack then break end
    price, at = unpack('<d', pack, at)
  end
  after[i] = changed and debt
  if low then
    lowered = lowered or {}
    lowered[i] = full
  end
end
for i = 1, count do
  local debt = after[i]
  if debt then
    -- Lua's remainder rounds a quotient: below 2^38 microseconds it finds the right one.
    local ticks = debt % 64000
    local micros = (debt - ticks) / 64000
    local value = format('%d%05d', (base + micros) % TURN, ticks)
    if lowered and lowered[i] then
      -- It stays for the deepest debt that anybody may remember.
      value, micros = '-' .. value, math.max(micros, lowered[i] / 64000 + 1)
    end
    call('SET', KEYS[i], value, 'PXAT', format('%d', (now + micros) / 1000 + 2)) -- cut
  end
end
return found
