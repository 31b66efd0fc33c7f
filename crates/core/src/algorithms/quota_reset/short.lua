-- Quota reset alone, and short: the twin of quota_reset.rs for requests of one charge each, under
-- limits whose window is of whole microseconds. The same values and the same answers as decide.lua
-- with quota_reset.lua, in half the time.
--
-- KEYS      the keys, each once
-- ARGV[1]   microseconds since 1970, for tests; empty: the server's clock, read once
-- ARGV[..]  for each key: N, whether denials are counted, window, then the cost of each request in
--           its order
-- Answers   the moment, then each value as it was found. Of one key, by the server's clock: one
--           text, `seconds micros value`, see gcra/short.lua
--
-- All moments are below 2^53, and so exact, and counts go up to it. A sum above it may be rounded:
-- then it is above N as well.

local call, format, unpack, pack = redis.call, string.format, struct.unpack, struct.pack
local KEYS, ARGV = KEYS, ARGV
local HALF, MOST, STEP = 4294967296, 9007199254740992, 4000000
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
  local n, counted, width, at = unpack('<ddd', numbers)
  local opened, used = now, 0
  if value then
    local bytes = #value
    if bytes ~= 13 and bytes ~= 17 or string.sub(value, 1, 1) ~= 'q' then
      return redis.error_reply('FOREIGN ' .. KEYS[i])
    end
    local low, high, before = unpack(bytes == 13 and '<I4I4I4' or '<I4I4I8', value, 2)
    local first = high * HALF + low
    if now < first + width and before > 0 then opened, used = first, before end
  end

  local changed = false
  repeat
    local cost
    cost, at = unpack('<d', numbers, at)
    local charge = 0
    if used + cost <= n then
      charge = cost
    elseif counted == 1 then
      charge = math.min(cost, math.max(0, math.min(2 * n, MOST) - used))
    end
    if charge > 0 then used, changed = used + charge, true end
  until at > #numbers

  if changed then
    local low, ends = opened % HALF, opened + width + 2
    local numbers = used < HALF and '<I4I4I4' or '<I4I4I8'
    values[i] = 'q' .. pack(numbers, low, (opened - low) / HALF, used)
    expiries[i] = format('%d', (ends - ends % STEP + STEP) / 1000)
  end
end
for i = 1, count do
  if values[i] then call('SET', KEYS[i], values[i], 'PXAT', expiries[i]) end
end
if count == 1 and time then return time[1] .. ' ' .. time[2] .. ' ' .. (found[2] or '') end
return found
