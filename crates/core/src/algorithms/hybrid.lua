-- Hybrids: the twin of hybrid.rs. A state is a phase, a moment, and a number: permits left while
-- bursty; Nths of a nanosecond while smooth. See hybrid/shared.rs.

local BURSTY, SMOOTH = 1, 2

-- The first whole nanosecond at or after a bucket was empty.
local function up(u, n, part)
  if part > 0 then return add(u, n, 0, 1) end
  return u, n
end

twins.h = {
  -- N, span; from the start of a window to where its bucket is empty, and Nths.
  numbers = '<dddddd',

  read = function(value)
    if #value ~= 14 or string.sub(value, 1, 1) ~= 'h' then return nil end
    local phase, low, high, number = struct.unpack('<I1I4I4I4', value, 2)
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
      local su, sn = state[2], state[3]
      if state[1] == SMOOTH then su, sn = up(su, sn, state[4]) end
      su, sn = add(su, sn, limit[2], limit[3])
      if later(su, sn, now, 0) then
        if state[1] == SMOOTH then
          local eu, en = add(state[2], state[3], cu, cn)
          local rest = state[4] + part
          if rest >= permits then
            rest = rest - permits
            eu, en = add(eu, en, 0, 1)
          end
          local au, an = up(eu, en, rest)
          if later(au, an, now, 0) then return false, nil end
          return true, {SMOOTH, eu, en, rest}
        end
        u, n, left = state[2], state[3], state[4]
      end
    end
    if cost > left then return false, nil end
    if cost < left then return true, {BURSTY, u, n, left - cost} end
    u, n = add(u, n, limit[4], limit[5])
    return true, {SMOOTH, u, n, limit[6]}
  end,

  -- A charge cannot be taken back.
  refund = function() return nil end,

  write = function(state, limit)
    local low, high = halves(state[2], state[3])
    local value = 'h' .. struct.pack('<I1I4I4I4', state[1], low, high, state[4])
    return value, state[2] + limit[2] + 2
  end,
}
