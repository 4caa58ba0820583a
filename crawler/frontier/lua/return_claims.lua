#!lua flags=allow-oom
-- return_claims: put unfetched claims back into their queues, without counting a delivery. Needs the fence and each token.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack list of {token, next fetch (ms) or 0, silent origin ('': none), when it is probed
--       (ms), since when it has been silent (ms; -1: not known to be)}: with an origin, its URL is set aside until then, and so are others
--       of it that would be handed out soon (see _aside.lua)
-- returns {'FENCED'} | {'COMMITTED', number of returned claims}
if not fence(ARGV) then return {'FENCED'} end
local given, aside = 0, {}

-- Those of one origin of a queue, together.
local function set_aside(queue, user, score, member, one)
  local origin = one[ReturnItem.origin]
  local name = queue .. '|!' .. origin
  local of = aside[name] or {queue = queue, origin = origin, due = one[ReturnItem.due_ms], since = one[ReturnItem.since_ms]}
  of[#of + 1], of[#of + 2], aside[name] = score, Aside.stored(user, member), of
  of.users = of.users or {}
  of.users[user] = true
end

for _, one in ipairs(cmsgpack.unpack(ARGV[FenceArgs.size + 1])) do
  local token = one[ReturnItem.token]
  if is_claimed(token, ARGV[FenceArgs.epoch]) then
    local r, score, row, _, member = take_claim(token)
    local queue, user = Users.split(row)
    if one[ReturnItem.origin] == '' or (Stops.BUDGETS[r[MORE].stop] and Stops.hold(r, user)) then
      put_back(r, user, {score, member})
    else
      set_aside(queue, user, score, member, one)
      note_unanswered(r)
    end
    settle(r, one[ReturnItem.next_fetch_ms], -1)
    given = given + 1
  end
end
for _, of in pairs(aside) do
  local r = record_of(of.queue)
  for user in pairs(of.users) do
    if not Stops.deferring(r, user) then Aside.sweep(r, user, of.origin, of) end
  end
  Aside.put(r, of.origin, of, of.due, of.since)
  count(ctx.total, 'moves', 1)
end
close_call()
return {'COMMITTED', given}
