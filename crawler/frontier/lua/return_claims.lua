#!lua flags=allow-oom
-- return_claims: put unfetched claims back into their queues, without counting a delivery. Needs the fence and each token.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack list of {token, next fetch (ms) or 0}
-- returns {'FENCED'} | {'COMMITTED', number of returned claims}
if not fence(ARGV[1], ARGV[2], tonumber(ARGV[3])) then return {'FENCED'} end
local given = 0
for _, a in ipairs(cmsgpack.unpack(ARGV[4])) do
  if is_claimed(a[1], ARGV[2]) then
    local score, queue, _, member = unpack_record(call('HGET', P .. 'u', a[1]))
    end_claims({a[1]})
    local r = record_of(queue)
    put_back(r, {score, member})
    settle(r, 1, a[2], -1)
    given = given + 1
  end
end
close_queues()
write_totals()
return {'COMMITTED', given}
