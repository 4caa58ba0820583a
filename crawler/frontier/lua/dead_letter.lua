#!lua flags=allow-oom
-- dead_letter: give a URL up; it is kept and counted as a dead letter. Needs the fence and the delivery's token.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack {fingerprint, token, queue, next fetch (ms), delay (ms), dead letter, failure kind,
--       run, this attempt (JSON) or '' for none, seed}
-- returns {'FENCED'} | {'GONE'} | {'COMMITTED'}
if not fence(ARGV[1], ARGV[2], tonumber(ARGV[3])) then return {'FENCED'} end
local a = cmsgpack.unpack(ARGV[4])
if not is_claimed(a[2], ARGV[2]) then return {'GONE'} end
end_claims({a[2]})
call('HSET', P .. 'dead', a[1], a[6] .. '\n' .. attempts_with(a[1], a[9]))
forget(a[8], {a[1]}, true)
local r = record_of(a[3])
for name, n in pairs({dead = 1, ['e:' .. a[7]] = 1}) do count_in(r, name, n) end
settle(r, 1, a[4], a[5])
close_queues()
count_seed(a[10], DEAD, 1)
write_seeds()
bump(M, {done = 1, dead = 1, ['e:' .. a[7]] = 1})
return {'COMMITTED'}
