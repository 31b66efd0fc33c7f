-- Balance: the twin of balance.rs. A state is the credits, and the ids of the last grants as they
-- are stored: see balance/stored_form.rs. Grants are made by the caller, as an exchange.

local function credits(limit, state)
  return math.min(state and state[1] or limit[1], limit[2])
end

twins.c = {
  -- Credits at the start, maximum.
  numbers = '<dd',

  read = function(value)
    local bytes = (#value - 2) % 8 + 1 -- of the credits
    local ids = #value - 1 - bytes
    if bytes % 4 ~= 0 or ids < 0 or ids > 256 or string.sub(value, 1, 1) ~= 'c' then return nil end
    return {struct.unpack(bytes == 4 and '<I4' or '<I8', value, 2), string.sub(value, bytes + 2)}
  end,

  decide = function(limit, state, cost)
    local left = credits(limit, state) - cost
    if left < 0 then return false, nil end
    if cost == 0 then return true, nil end
    local ids = state and state[2] or ''
    return true, {left, ids}
  end,

  refund = function(limit, state, cost)
    local ids = state and state[2] or ''
    local had, most = credits(limit, state), limit[ids == '' and 1 or 2]
    local has = math.min(had + cost, most)
    if has <= had then return nil end
    if has == limit[1] and ids == '' then return false end
    return {has, ids}
  end,

  -- Without an expiry: nothing but a charge or a grant changes a balance.
  write = function(state)
    return 'c' .. struct.pack(state[1] < 4294967296 and '<I4' or '<I8', state[1]) .. state[2], nil
  end,
}
