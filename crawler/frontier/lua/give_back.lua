#!lua flags=allow-oom
-- give_back: unfetched claims return to their queues, no delivery counted. Needs the fence and each token.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack list of {fingerprint, token, queue, domain, next fetch (ms) or 0}
-- returns {'FENCED'} | {'COMMITTED', how many}
--@include _fence _record _queue _end
if not fence(ARGV[1], ARGV[2], tonumber(ARGV[3])) then return {'FENCED'} end
local given = 0
for _, a in ipairs(cmsgpack.unpack(ARGV[4])) do
  if is_claimed(a[1], a[2], ARGV[2]) then
    -- The stored score, not the claim's: a shorter path may have been found meanwhile.
    local score = cjson.decode(call('HGET', P .. 'u', a[1]))[R_SCORE]
    end_claim(a[1], false)
    bump(P .. 'd:' .. a[4], {'claimed', -1, 'queued', 1})
    call('ZADD', P .. 'q:' .. a[3], score, a[1])
    settle(a[3], 1, a[5], -1)
    given = given + 1
  end
end
return {'COMMITTED', given}
