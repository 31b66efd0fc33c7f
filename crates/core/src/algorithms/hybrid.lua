-- Hybrids: the twin of hybrid.rs. A state is a phase, a moment, and a number: permits left while
-- bursty; Nths of a nanosecond while smooth. See hybrid/stored_form.rs.

local BURSTY, SMOOTH = 1, 2

-- The state, where a window without permits is the bucket that it counts as.
local function plain(limit, state)
  if state[1] == SMOOTH or state[4] > 0 then return state end
  local u, n = add(state[2], state[3], limit[4], limit[5])
  return {SMOOTH, u, n, limit[6]}
end

-- The first whole nanosecond at or after a bucket was empty.
local function up(u, n, part)
  if part > 0 then return add(u, n, 0, 1) end
  return u, n
end

-- When a plain state is fresh.
local function expiry(limit, state)
  local u, n = state[2], state[3]
  if state[1] == SMOOTH then u, n = up(u, n, state[4]) end
  return add(u, n, limit[2], limit[3])
end

twins.h = {
  -- N, span; from the start of a window to where its bucket is empty, and Nths.
  numbers = '<dddddd',

  read = function(value)
    local bytes = #value
    if bytes ~= 14 and bytes ~= 18 or string.sub(value, 1, 1) ~= 'h' then return nil end
    local numbers = bytes == 14 and '<I1I4I4I4' or '<I1I4I4I8'
    local phase, low, high, number = struct.unpack(numbers, value, 2)
    local u, n = moment(low, high)
    return {phase, u, n, number}
  end,

  -- The cost; the time that it takes, and Nths.
  decide = function(limit, state, cost, cu, cn, part)
    if cost == 0 then return true, nil end
    local permits = limit[1]
    if cost > permits then return false, nil end
    local u, n, left = now, 0, permits
    if state then
      state = plain(limit, state)
      local eu, en = expiry(limit, state)
      if later(eu, en, now, 0) then
        if state[1] == SMOOTH then
          local eu, en = add(state[2], state[3], cu, cn)
          local rest = state[4] - (permits - part) -- exact where their sum is not
          if rest >= 0 then
            eu, en = add(eu, en, 0, 1)
          else
            rest = rest + permits
          end
          local au, an = up(eu, en, rest)
          if later(au, an, now, 0) then return false, nil end
          return true, {SMOOTH, eu, en, rest}
        end
        u, n, left = state[2], state[3], state[4]
      end
    end
    if cost > left then return false, nil end
    return true, {BURSTY, u, n, left - cost}
  end,

  -- While the window lasts, permits come back to it; later, to the bucket.
  refund = function(limit, state, cost, cu, cn, part)
    if not state or cost == 0 then return nil end
    local bucket = plain(limit, state)
    local eu, en = expiry(limit, bucket)
    if not later(eu, en, now, 0) then return nil end
    if cost >= limit[1] then return false end
    if state[1] == BURSTY then
      local wu, wn = add(state[2], state[3], limit[2], limit[3])
      if later(wu, wn, now, 0) then
        local left = state[4] + cost
        if left >= limit[1] then return false end
        return {BURSTY, state[2], state[3], left}
      end
    end
    local rest = bucket[4] - part
    if rest < 0 then
      rest = rest + limit[1]
      cu, cn = add(cu, cn, 0, 1)
    end
    local u, n = bucket[2], bucket[3]
    if later(cu, cn, u, n) then return {SMOOTH, 0, 0, 0} end
    u, n = sub(u, n, cu, cn)
    return {SMOOTH, u, n, rest}
  end,

  write = function(state, limit)
    local low, high = halves(state[2], state[3])
    local numbers = state[4] < 4294967296 and '<I1I4I4I4' or '<I1I4I4I8'
    local value = 'h' .. struct.pack(numbers, state[1], low, high, state[4])
    return value, plain(limit, state)[2] + limit[2] + 2
  end,
}
