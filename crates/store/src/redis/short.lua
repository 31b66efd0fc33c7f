-- Decides requests of one charge each, all under limits of one short twin. The same values and the
-- same answers as decide.lua with the long twins, in about half the time: no tables and no
-- functions, which a script would make anew for every call.
--
-- KEYS      the keys, each once
-- ARGV[1]   microseconds since 1970, for tests; empty: the server's clock, read once
-- ARGV[..]  for each key: the numbers of the limit, then the price of each request in its order
-- ARGV[..]  if anything is: for each key the value that the caller remembers, or nothing
-- Answers   the moment; then each value as it was found, or as the caller remembers it. Of one
--           key, by the server's clock: one text, `seconds micros value`, since Redis asks a
--           table for seven names before it answers what the table lists
--
-- The twin reads `now`, `i`, `value` and `numbers`. It sets `after`, the value to write, and
-- `expires`, the moment after which that says nothing; and `kept`, a moment before which the value
-- found does not expire. A charge that stays within the step of `kept` keeps the expiry. STEP is
-- EXPIRY_STEP_MICROS.

local call, format, sub = redis.call, string.format, string.sub
local pack, unpack = struct.pack, struct.unpack
local KEYS, ARGV = KEYS, ARGV
local STEP, HALF = 4000000, 4294967296
local now, time = ARGV[1], nil
if now == '' then
  time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(now)
end
local count = #KEYS
local found, values, ends
if count > 1 then found, values, ends = {now}, {}, {} end
--@once
for i = 1, count do
  local value = call('GET', KEYS[i])
  local numbers, after, expires, kept = ARGV[i + 1], nil, nil, nil
--@each
  if after then
    local step = expires - expires % STEP
    expires = (not kept or step > kept) and format('%d', (step + STEP) / 1000)
  end
  if count > 1 then
    found[i + 1], values[i], ends[i] = value, after or false, expires
  else
    if after then
      if expires then
        call('SET', KEYS[1], after, 'PXAT', expires)
      else
        call('SET', KEYS[1], after, 'KEEPTTL')
      end
    end
    if not time then return {now, value} end
    return time[1] .. ' ' .. time[2] .. ' ' .. (value or '')
  end
end
for i = 1, count do
  if ends[i] then
    call('SET', KEYS[i], values[i], 'PXAT', ends[i])
  elseif values[i] then
    call('SET', KEYS[i], values[i], 'KEEPTTL')
  end
end
return found
