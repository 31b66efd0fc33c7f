-- GCRA: the twin of gcra.rs. A state is a debt: whole microseconds, and ticks of 1/64 ns below
-- 64,000; microseconds are negative if it has been paid. The value is the moment at which it
-- is paid: see gcra/shared.rs.

local TURN, PAST = 92000000000000, 10000000000000

-- Of two debts, whether the first is larger.
local function deeper(u, f, v, g)
  return u > v or u == v and f > g
end

local function sum(u, f, v, g)
  f = f + g
  if f >= 64000 then return u + v + 1, f - 64000 end
  return u + v, f
end

twins.g = {
  -- Denials are counted; the limit; the deepest debt believed; what a deeper one is cut to.
  numbers = '<ddddddd',

  read = function(value)
    local u, f = tonumber(string.sub(value, 1, -6)), tonumber(string.sub(value, -5))
    if not u or not f then return nil end
    u = u - math.fmod(now, TURN)
    if u < -PAST then u = u + TURN elseif u >= TURN - PAST then u = u - TURN end
    return {u, f}
  end,

  decide = function(limit, state, pu, pf)
    local u, f, changed = 0, 0, false
    if state and state[1] >= 0 then
      u, f = state[1], state[2]
      if deeper(u, f, limit[4], limit[5]) then u, f, changed = limit[6], limit[7], true end
    end
    local cu, cf = sum(u, f, pu, pf)
    if not deeper(cu, cf, limit[2], limit[3]) then
      if pu > 0 or pf > 0 then return true, {cu, cf} end
      return true, changed and {u, f} or nil
    end
    if limit[1] == 1 then
      local mu, mf = sum(limit[2], limit[3], limit[2], limit[3])
      if deeper(cu, cf, mu, mf) then cu, cf = mu, mf end
      if deeper(cu, cf, u, f) then return false, {cu, cf} end
    end
    return false, changed and {u, f} or nil
  end,

  refund = function(limit, state, pu, pf)
    if not state or state[1] < 0 then return nil end
    local u, f = state[1] - pu, state[2] - pf
    if f < 0 then u, f = u - 1, f + 64000 end
    if u < 0 then return {0, 0} end
    return {u, f}
  end,

  -- The value, and microseconds after which it says nothing.
  write = function(state)
    local u, f = state[1], state[2]
    return string.format('%d%05d', math.fmod(now + u, TURN), f), now + u + 1
  end,
}
