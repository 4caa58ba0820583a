#!lua flags=allow-oom
-- refuse: end a claimed URL that must not be fetched (robots, scope ...); counted by reason. Needs the fence and the token.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack {fingerprint, token, queue, reason, run, seed}
-- returns {'FENCED'} | {'GONE'} | {'COMMITTED'}
if not fence(ARGV[1], ARGV[2], tonumber(ARGV[3])) then return {'FENCED'} end
local a = cmsgpack.unpack(ARGV[4])
if not is_claimed(a[2], ARGV[2]) then return {'GONE'} end
end_claims({a[2]})
forget(a[5], {a[1]}, true)
local r = record_of(a[3])
count_in(r, 'refused:' .. a[4], 1)
settle(r, 1, 0, -1)
close_queues()
count_seed(a[6], DONE, 1)
write_seeds()
bump(M, {done = 1, ['refused:' .. a[4]] = 1})
return {'COMMITTED'}
