#!lua flags=allow-oom
-- touch_run: note which partitions are to get URLs of a run, before they get any, and the roots of its scope that its seeds and
-- their redirects open. In the partition of its job. Without a fence: any session may add. Idempotent.
-- touched:<run>, roots:<run>: sets of these. runs: hash of the active runs -> record (JSON), written elsewhere.
-- KEYS  meta
-- ARGV  TouchArgs
-- returns {'ENDED'}: it is not active, nothing was noted | {'COMMITTED'}
local run = ARGV[TouchArgs.run]
if call('HEXISTS', ctx.prefix .. 'runs', run) == 0 then return {'ENDED'} end
run_many(cmsgpack.unpack(ARGV[TouchArgs.partitions]), 'SADD', ctx.prefix .. 'touched:' .. run)
run_many(cmsgpack.unpack(ARGV[TouchArgs.roots]), 'SADD', ctx.prefix .. 'roots:' .. run)
return {'COMMITTED'}
