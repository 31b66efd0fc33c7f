-- GCRA in short.lua: the twin of gcra.rs, under limits whose debts are below 2^53 units of their
-- grid, so that a debt is one number. Numbers: the limit, the deepest debt that is left, whether
-- denials are counted, units in a microsecond, the end of its values.
local ceil = math.ceil
local TURN, PAST, SLACK = 92000000000000, 10000000000000, 10000000
local base = now % TURN
local last, limit, full, counted, units, name, first, rest, deepest
--@each
  if numbers ~= last then -- mostly one limit, and one request of each key
    last, limit, full, counted, units, name, first, rest = numbers, unpack('<ddddsd', numbers)
    deepest = full + SLACK * units
  end
  local debt, changed, low = 0, false, false
  if value == '' then return redis.error_reply('FOREIGN ' .. KEYS[i]) end -- the caller sees no value
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
    kept = now + micros
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

  if changed then
    -- Lua's remainder rounds a quotient: of debts below 2^53 it finds the right one.
    local part = debt % units
    local micros = (debt - part) / units
    local paid = (base + micros) % TURN
    if low then
      -- It stays for the deepest debt that anybody may remember.
      paid, micros, kept = -paid - 1, math.max(micros, full / units + 1), nil
    end
    after = pack('<i6Hc0', paid, ceil(part * 64000 / units), name)
    expires = now + micros
  end
