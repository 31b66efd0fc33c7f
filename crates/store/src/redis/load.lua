-- Reads: the moment, then the value of each key. The first half of a compare-and-set.
local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = string.format('%.0f', time[1] * 1000000 + time[2])
end
local found = {tonumber(now)}
for i = 1, #KEYS do found[i + 1] = redis.call('GET', KEYS[i]) end
return found
