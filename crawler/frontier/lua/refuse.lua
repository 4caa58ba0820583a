#!lua flags=allow-oom
-- refuse: end a claimed URL that must not be fetched (robots, scope ...); counted by reason. Needs the fence and the token.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack RefuseArgs
-- returns {'FENCED'} | {'GONE'} | {'COMMITTED'}
if not fence(ARGV) then return {'FENCED'} end
local a = cmsgpack.unpack(ARGV[FenceArgs.size + 1])
local token = a[RefuseArgs.token]
if not is_claimed(token, ARGV[FenceArgs.epoch]) then return {'GONE'} end
local r = take_claim(token)
forget(run_named(a[RefuseArgs.seed]), {a[RefuseArgs.fingerprint]}, true)
enter(State.REFUSED, r, {seed = a[RefuseArgs.seed], reason = a[RefuseArgs.reason], example = a[RefuseArgs.url]})
settle(r, 0, -1)
close_call()
return {'COMMITTED'}
