-- One window alone, and short: the twin of window.rs for requests of one charge each, under limits
-- of one window whose width and phase are whole microseconds. The same values and the same answers
-- as decide.lua with window.lua, in half the time.
--
-- KEYS      the keys, each once
-- ARGV[1]   microseconds since 1970, for tests; empty: the server's clock, read once
-- ARGV[..]  for each key: N, edge, whether denials are counted, phase, width, then the cost of
--           each request in its order
-- Answers   the moment, then each value as it was found. Of one key, by the server's clock: one
--           text, `seconds micros value`, see gcra/short.lua
--
-- All products are below 2^53, and so exact, but for that of a count that was carried over from a
-- larger limit: that one is then too large as well, which is all that is asked of it. So is a sum
-- above 2^53, which may be rounded.

local call, format, unpack, pack = redis.call, string.format, struct.unpack, struct.pack
local KEYS, ARGV = KEYS, ARGV
local HALF, MOST, STEP = 4294967296, 9007199254740992, 4000000
local FULL, WEIGHTED = 1, 2
local now, time = ARGV[1], nil
if now == '' then
  time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(now)
end
local count = #KEYS
local found, values, expiries = {now}, {}, {}
for i = 1, count do
  local value = call('GET', KEYS[i])
  found[i + 1] = value
  local numbers = ARGV[i + 1]
  local n, edge, counted, phase, width, at = unpack('<ddddd', numbers)
  local low, high, newest, oldest = 0, 0, 0, 0
  if value then
    local bytes = #value
    if bytes ~= 17 and bytes ~= 25 or string.sub(value, 1, 1) ~= 'w' then
      return redis.error_reply('FOREIGN ' .. KEYS[i])
    end
    low, high, newest, oldest = unpack(bytes == 17 and '<I4I4I4I4' or '<I4I4I8I8', value, 2)
  end

  -- The window of now: its number, and what is left of it.
  local current, left = 0, 0
  if now < phase then
    left = phase - now
  else
    -- Lua's remainder rounds a quotient: of moments below 2^51 it finds the right one.
    local part = (now - phase) % width
    current, left = (now - phase - part) / width + 1, width - part
  end
  local index = high * HALF + low
  if current <= index then
    if current < index then left = width end -- the clock was set back
    current = index
  else
    oldest = current == index + 1 and newest or 0
    newest, low = 0, current % HALF
    high = (current - low) / HALF
  end

  local changed = false
  repeat
    local cost
    cost, at = unpack('<d', numbers, at)
    local room = n - newest - cost
    local fits = room >= 0
    if fits and oldest > room then
      if edge == FULL then
        fits = false
      elseif edge == WEIGHTED then
        fits = oldest * left < (room + 1) * width
      end
    end
    local charge = 0
    if fits then
      charge = cost
    elseif counted == 1 then
      charge = math.min(cost, math.max(0, math.min(2 * n, MOST) - newest))
    end
    if charge > 0 then newest, changed = newest + charge, true end
  until at > #numbers

  if changed then
    local ends = phase + current * width
    if edge ~= 0 then ends = ends + width end
    local wide = newest >= HALF or oldest >= HALF
    values[i] = 'w' .. pack(wide and '<I4I4I8I8' or '<I4I4I4I4', low, high, newest, oldest)
    expiries[i] = format('%d', (ends + 2 - (ends + 2) % STEP + STEP) / 1000)
  end
end
for i = 1, count do
  if values[i] then call('SET', KEYS[i], values[i], 'PXAT', expiries[i]) end
end
if count == 1 and time then return time[1] .. ' ' .. time[2] .. ' ' .. (found[2] or '') end
return found
