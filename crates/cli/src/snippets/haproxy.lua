-- Asks ratekeeper about each request: `http-request lua.ratekeeper` in the frontend. A
-- refusal is answered here; a request that passes goes on with txn.ratekeeper_answered set.
-- Save as /etc/haproxy/ratekeeper.lua.

local ratekeeper = "http://127.0.0.1:8080/v1/auth"
-- HAProxy asks up to four times: one second in all. Write more than the longest wait in a
-- `queue` of the policy, or a request in the queue is asked about again.
local timeout_ms = 250

-- Not forwarded: they belong to one connection or body, or a visitor must not set them.
local dropped = {
    ["connection"] = true, ["keep-alive"] = true, ["transfer-encoding"] = true,
    ["te"] = true, ["trailer"] = true, ["upgrade"] = true, ["expect"] = true,
    ["content-length"] = true, ["proxy-connection"] = true,
    ["x-original-method"] = true, ["x-original-uri"] = true,
    ["x-original-url"] = true,
    ["x-forwarded-method"] = true, ["x-forwarded-uri"] = true, ["x-forwarded-host"] = true,
}

local function question(txn)
    local headers = {}
    for name, values in pairs(txn.http:req_get_headers()) do
        if not dropped[name] then
            headers[name] = {}
            for index = 0, #values do -- HAProxy counts header values from 0
                table.insert(headers[name], values[index])
            end
        end
    end
    headers["x-original-method"] = { txn.sf:method() }
    headers["x-original-uri"] = { txn.sf:pathq() }
    local chain = headers["x-forwarded-for"] or {}
    table.insert(chain, txn.sf:src())
    headers["x-forwarded-for"] = { table.concat(chain, ", ") }
    return headers
end

local function refuse(txn, answer)
    local reply = txn:reply({ status = answer.status })
    for _, name in ipairs({ "retry-after", "ratelimit", "ratelimit-policy", "content-type" }) do
        if answer.headers[name] then
            reply:add_header(name, answer.headers[name][0])
        end
    end
    reply:set_body(answer.body or "")
    txn:done(reply)
end

core.register_action("ratekeeper", { "http-req" }, function(txn)
    local answer = core.httpclient():get({
        url = ratekeeper, headers = question(txn), timeout = timeout_ms,
    })
    local headers = answer and answer.headers or {}
    if not headers["date"] then
        return -- HAProxy's own answer for "down" or "too slow", which has no date
    end
    if answer.status ~= 200 then
        refuse(txn, answer)
    end
    txn:set_var("txn.ratekeeper_answered", true)
    if headers["ratelimit"] then
        txn:set_var("txn.ratekeeper_limit", headers["ratelimit"][0])
        txn:set_var("txn.ratekeeper_policy", headers["ratelimit-policy"][0])
    end
    if headers["x-ratekeeper-shadow"] then
        txn:set_var("txn.ratekeeper_shadow", headers["x-ratekeeper-shadow"][0])
    end
end)
