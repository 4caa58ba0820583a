#!lua flags=allow-oom
-- drain_log: delete commit entries that are in an index segment on disk. Needs the fence. Idempotent.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), then the entries' keys 'fingerprint:visit'
-- returns {'FENCED'} | {'COMMITTED', number of deleted entries}
if not fence(ARGV) then return {'FENCED'} end
local keys = {}
for i = FenceArgs.size + 1, #ARGV do keys[i - FenceArgs.size] = ARGV[i] end
return {'COMMITTED', run_many(keys, 'HDEL', ctx.prefix .. 'l')}
