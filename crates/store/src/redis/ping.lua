-- Whether states can be read and written here: writes the key that it names, for a second. Answers as
-- scripts that decide do: the moment; then a value, none.
local time = redis.call('TIME')
redis.call('SET', KEYS[1], '', 'PX', 1000)
redis.call('GET', KEYS[1])
return {time[1] * 1000000 + time[2], false}
