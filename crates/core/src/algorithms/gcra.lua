-- GCRA: the twin of gcra.rs. A state is a debt: whole microseconds, and units of the limit below
-- the number that a microsecond holds; microseconds are negative if it has been paid; and whether
-- it has been moved back. The value is the moment at which it is paid, to 1/64 ns: see
-- gcra/stored_form.rs and gcra/grid.rs.

local TURN, PAST = 92000000000000, 10000000000000

-- Of two debts, whether the first is larger.
local function deeper(u, f, v, g)
  return u > v or u == v and f > g
end

local function sum(limit, u, f, v, g)
  f = f + g
  if f >= limit[2] then return u + v + 1, f - limit[2] end
  return u + v, f
end

twins.g = {
  -- Denials are counted; units in a microsecond; the limit; the deepest debt believed; what a
  -- deeper one is cut to; the end of its values.
  numbers = '<dddddddds',

  read = function(value, limit)
    if string.sub(value, 9) ~= limit[9] then return nil end -- of other numbers
    local u, f = struct.unpack('<i6H', value)
    local low = u < 0
    if low then u = -u - 1 end
    -- The fewest units that last as long: the very ones that were written, under this limit.
    f = math.floor((f - 1) * limit[2] / 64000) + 1
    if f == limit[2] then u, f = u + 1, 0 end
    u = u - math.fmod(now, TURN)
    if u < -PAST then u = u + TURN elseif u >= TURN - PAST then u = u - TURN end
    return {u, f, low}
  end,

  -- The state that a caller remembers, if it says more than the one that is there: the store
  -- has lost it. What has been moved back is known better here.
  learn = function(state, told)
    if told[1] < 0 or state and state[3] then return nil end
    if state and not deeper(told[1], told[2], state[1], state[2]) then return nil end
    return told
  end,

  decide = function(limit, state, pu, pf)
    local u, f, low, changed = 0, 0, state and state[3], false
    if state and state[1] >= 0 then
      u, f = state[1], state[2]
      if deeper(u, f, limit[5], limit[6]) then
        u, f, low, changed = limit[7], limit[8], true, true
      end
    end
    local cu, cf = sum(limit, u, f, pu, pf)
    if not deeper(cu, cf, limit[3], limit[4]) then
      if pu > 0 or pf > 0 then return true, {cu, cf, low} end
      return true, changed and {u, f, low} or nil
    end
    if limit[1] == 1 then
      local mu, mf = sum(limit, limit[3], limit[4], limit[3], limit[4])
      if deeper(cu, cf, mu, mf) then cu, cf = mu, mf end
      if deeper(cu, cf, u, f) then return false, {cu, cf, low} end
    end
    return false, changed and {u, f, low} or nil
  end,

  refund = function(limit, state, pu, pf)
    if not state or state[1] < 0 then return nil end
    local u, f = state[1] - pu, state[2] - pf
    if f < 0 then u, f = u - 1, f + limit[2] end
    if u < 0 then return {0, 0, true} end
    return {u, f, true}
  end,

  -- The value, and microseconds after which it says nothing.
  write = function(state, limit)
    local u, f = state[1], state[2]
    local paid, lasts = math.fmod(now + u, TURN), u
    if state[3] then paid, lasts = -paid - 1, math.max(u, limit[7] + 1) end
    return struct.pack('<i6Hc0', paid, math.ceil(f * 64000 / limit[2]), limit[9]), now + lasts + 1
  end,
}
