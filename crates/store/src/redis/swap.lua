-- Writes all values or none: if each key still holds what was read. The second half of a
-- compare-and-set.
--
-- ARGV  for each key three: what was read, what it becomes, and when that expires in
--       milliseconds since 1970. Empty: no value, no expiry.
for i = 1, #KEYS do
  local value = redis.pcall('GET', KEYS[i])
  if type(value) == 'table' then -- as `load.lua` reads another type
    if not string.find(value.err, 'WRONGTYPE') then return value end
    value = '\255'
  elseif value == '' then
    value = '\255'
  end
  if (value or '') ~= ARGV[3 * i - 2] then return 0 end
end
for i = 1, #KEYS do
  local before, after = ARGV[3 * i - 2], ARGV[3 * i - 1]
  if after ~= before then
    if after == '' then
      redis.call('DEL', KEYS[i])
    else
      local expires = ARGV[3 * i]
      if expires == '' then
        redis.call('SET', KEYS[i], after)
      else
        redis.call('SET', KEYS[i], after, 'PXAT', expires)
      end
    end
  end
end
return 1
