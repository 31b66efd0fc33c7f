-- Spans and moments that need nanoseconds: two numbers, whole microseconds and nanoseconds
-- below 1,000. In values they are 64-bit nanoseconds, little endian.

local function later(u, n, v, m)
  return u > v or u == v and n > m
end

local function add(u, n, v, m)
  n = n + m
  if n >= 1000 then return u + v + 1, n - 1000 end
  return u + v, n
end

-- The first minus the second, which is not later.
local function sub(u, n, v, m)
  if n < m then return u - v - 1, n + 1000 - m end
  return u - v, n - m
end

-- So many times a span.
local function times(count, u, n)
  n = count * n
  local carry = math.floor(n / 1000)
  return count * u + carry, n - carry * 1000
end

-- How many whole steps fit into a span. The quotient of floats is off by one at most, which
-- exact multiplication shows.
local function steps(u, n, su, sn)
  local count = math.floor((u * 1000 + n) / (su * 1000 + sn))
  local tu, tn = times(count, su, sn)
  if later(tu, tn, u, n) then return count - 1 end
  tu, tn = add(tu, tn, su, sn)
  if later(tu, tn, u, n) then return count end
  return count + 1
end

-- 64 bits from two halves; 2^32 = 4294967 x 1000 + 296.
local function moment(low, high)
  local n = high * 296 + low
  local carry = math.floor(n / 1000)
  return high * 4294967 + carry, n - carry * 1000
end

local function halves(u, n)
  local high = math.floor(u / 4294967296)
  local low = (u - high * 4294967296) * 1000 + n
  local carry = math.floor(low / 4294967296)
  return low - carry * 4294967296, high * 1000 + carry
end
