-- GCRA alone, and short: the twin of gcra.rs for requests of one charge each, under limits whose
-- debts are below 2^53 units of their grid, so that a debt is one number. The same values and the
-- same answers as decide.lua with gcra.lua, in half the time.
--
-- KEYS      the keys, each once
-- ARGV[1]   microseconds since 1970, for tests; empty: the server's clock, read once
-- ARGV[..]  for each key: the limit, the deepest debt that is left, whether denials are
--           counted, units in a microsecond, the end of its values, then the price of each request
--           in its order
-- ARGV[..]  if anything is: for each key the value that the caller remembers, or nothing
-- Answers   the moment; then each value as it was found, or as the caller remembers it. Of one
--           key, by the server's clock: one text, `seconds micros value`, since Redis asks a
--           table for seven names before it answers what the table lists
--
-- STEP is EXPIRY_STEP_MICROS: a charge that does not carry the debt past the step at which the
-- value expires keeps its expiry.

local call, format, sub = redis.call, string.format, string.sub
local pack, unpack = struct.pack, struct.unpack
local ceil = math.ceil
local KEYS, ARGV = KEYS, ARGV
local TURN, PAST, SLACK, STEP = 92000000000000, 10000000000000, 10000000, 4000000
local now, time = ARGV[1], nil
if now == '' then
  time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(now)
end
local base = now % TURN
local count = #KEYS
local found, values, expiries
if count > 1 then found, values, expiries = {now}, {}, {} end
local last, limit, full, counted, units, name, first, rest, deepest
for i = 1, count do
  local value = call('GET', KEYS[i])
  local numbers = ARGV[i + 1]
  if numbers ~= last then -- mostly one limit, and one request of each key
    last, limit, full, counted, units, name, first, rest = numbers, unpack('<ddddsd', numbers)
    deepest = full + SLACK * units
  end
  local debt, changed, low, kept = 0, false, false, 0
  local ours = not value or sub(value, 9) == name -- else of other numbers: left to the caller
  if value and ours then
    local micros, ticks = unpack('<i6H', value)
    if micros < 0 then micros, low = -micros - 1, true end -- moved back
    micros = micros - base
    if micros < -PAST then
      micros = micros + TURN
    elseif micros >= TURN - PAST then
      micros = micros - TURN
    end
    kept = micros + STEP - (now + micros) % STEP -- where it expires
    -- Not exact if it is beyond 2^53; then it is cut.
    if micros >= 0 then
      -- The fewest units that last as long: of this limit's own value, what was written.
      debt = (ticks - 1) * units
      debt = micros * units + (debt - debt % 64000) / 64000 + 1
      if debt > deepest then debt, changed, low = full, true, true end
    end
  end
  local hint = ARGV[i + 1 + count]
  if hint and hint ~= '' and ours and not low then
    local micros, ticks = unpack('<i6H', hint)
    micros = micros - base
    if micros < -PAST then
      micros = micros + TURN
    elseif micros >= TURN - PAST then
      micros = micros - TURN
    end
    local told = (ticks - 1) * units
    told = micros * units + (told - told % 64000) / 64000 + 1
    if micros >= 0 and told > debt then
      debt, changed, value = told, true, hint
      if debt > deepest then debt, low = full, true end
    end
  end
  local price, at = first, rest
  while ours do
    if debt <= limit - price then
      if price > 0 then debt, changed = debt + price, true end
    elseif counted == 1 and debt < 2 * limit then
      debt, changed = math.min(debt + price, 2 * limit), true
    end
    if at > #numbers then break end
    price, at = unpack('<d', numbers, at)
  end

  local after, expires
  if changed then
    -- Lua's remainder rounds a quotient: of debts below 2^53 it finds the right one.
    local part = debt % units
    local micros = (debt - part) / units
    local paid = (base + micros) % TURN
    if low then
      -- It stays for the deepest debt that anybody may remember.
      paid, micros, kept = -paid - 1, math.max(micros, full / units + 1), 0
    end
    after = pack('<i6Hc0', paid, ceil(part * 64000 / units), name)
    if micros >= kept then
      expires = format('%d', (now + micros - (now + micros) % STEP + STEP) / 1000)
    end
  end
  if count > 1 then
    found[i + 1], values[i], expiries[i] = value, after or false, expires or false
  else
    if expires then
      call('SET', KEYS[1], after, 'PXAT', expires)
    elseif after then
      call('SET', KEYS[1], after, 'KEEPTTL')
    end
    if not time then return {now, value} end
    return time[1] .. ' ' .. time[2] .. ' ' .. (value or '')
  end
end
for i = 1, count do
  if expiries[i] then
    call('SET', KEYS[i], values[i], 'PXAT', expiries[i])
  elseif values[i] then
    call('SET', KEYS[i], values[i], 'KEEPTTL')
  end
end
return found
