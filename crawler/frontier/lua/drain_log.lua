#!lua flags=allow-oom
-- drain: clear commit entries that stand in an index segment on disk. Needs the fence. Idempotent.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), then the entries' keys 'fingerprint:visit'
-- returns {'FENCED'} | {'COMMITTED', how many}
if not fence(ARGV) then return {'FENCED'} end
local keys = {}
for i = FenceArgs.size + 1, #ARGV do keys[i - FenceArgs.size] = ARGV[i] end
return {'COMMITTED', run_many(keys, 'HDEL', P .. 'l')}
