#!lua flags=allow-oom
-- return_claims: put unfetched claims back into their queues, without counting a delivery. Needs the fence and each token.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack list of {token, next fetch (ms) or 0}
-- returns {'FENCED'} | {'COMMITTED', number of returned claims}
if not fence(ARGV) then return {'FENCED'} end
local given = 0
for _, one in ipairs(cmsgpack.unpack(ARGV[FenceArgs.size + 1])) do
  local token = one[ReturnItem.token]
  if is_claimed(token, ARGV[FenceArgs.epoch]) then
    local score, row, _, member = unpack_record(call('HGET', ctx.prefix .. 'u', token))
    end_claims({token})
    local queue, user = Users.split(row)
    local r = record_of(queue)
    put_back(r, user, {score, member})
    settle(r, 1, one[ReturnItem.next_fetch_ms], -1)
    given = given + 1
  end
end
close_queues()
write_totals()
write_seeds()
return {'COMMITTED', given}
