-- The table of the keys that operators banned or allowed, which all processes copy.
--   KEYS  the table: one value, of which the first eight bytes are the version
--   ARGV  the version that is known [, the table that replaces it, and how long it is kept, in ms]
-- Returns the table if its version is another; else replaces it.
if redis.call('GETRANGE', KEYS[1], 0, 7) ~= ARGV[1] then
  return redis.call('GETRANGE', KEYS[1], 0, -1)
end
if ARGV[2] then redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return false
