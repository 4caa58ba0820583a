#!lua flags=allow-oom
-- refuse: end a claimed URL that must not be fetched (robots, scope ...); counted by reason. Needs the fence and the token.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack {fingerprint, token, queue, reason, run, seed, URL}
-- returns {'FENCED'} | {'GONE'} | {'COMMITTED'}
if not fence(ARGV) then return {'FENCED'} end
local a = cmsgpack.unpack(ARGV[FenceArgs.size + 1])
local token, reason = a[RefuseArgs.token], 'refused:' .. a[RefuseArgs.reason]
if not is_claimed(token, ARGV[FenceArgs.epoch]) then return {'GONE'} end
end_claims({token})
forget(a[RefuseArgs.run], {a[RefuseArgs.fingerprint]}, true)
local r = record_of(a[RefuseArgs.queue])
count_in(r, reason, 1)
settle(r, 1, 0, -1)
count_seed(a[RefuseArgs.seed], DONE, 1)
count_run(a[RefuseArgs.seed], RunCounts.refused, 1)
Losses.keep(reason, a[RefuseArgs.url])
count(ctx.total, 'done', 1)
count(ctx.total, reason, 1)
close_call()
return {'COMMITTED'}
