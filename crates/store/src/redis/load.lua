-- Reads: the moment, then the value of each key. The first half of a compare-and-set. An empty text
-- and a key of another type read as a byte that begins no state.
local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = string.format('%.0f', time[1] * 1000000 + time[2])
end
local found = {tonumber(now)}
for i = 1, #KEYS do
  local value = redis.pcall('GET', KEYS[i])
  if type(value) == 'table' then
    if not string.find(value.err, 'WRONGTYPE') then return value end
    value = '\255'
  elseif value == '' then
    value = '\255'
  end
  found[i + 1] = value
end
return found
