#!lua flags=allow-oom
-- give_back: unfetched claims return to their queues, no delivery counted. Needs the fence and each token.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack list of {fingerprint, token, queue, domain, score, next fetch (ms) or 0}
-- returns {'FENCED'} | {'COMMITTED', how many}
--@include _fence _queue _end
if not fence(ARGV[1], ARGV[2], tonumber(ARGV[3])) then return {'FENCED'} end
local given = 0
for _, a in ipairs(cmsgpack.unpack(ARGV[4])) do
  if is_claimed(a[1], a[2]) then
    end_claim(a[1], a[4], false)
    call('HINCRBY', P .. 'd:' .. a[4], 'queued', 1)
    call('ZADD', P .. 'q:' .. a[3], a[5], a[1])
    settle(a[3], 1, a[6], -1)
    given = given + 1
  end
end
return {'COMMITTED', given}
