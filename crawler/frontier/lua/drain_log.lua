#!lua flags=allow-oom
-- drain_log: delete commit entries that are in an index segment on disk. Needs the fence. Idempotent.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), then the entries' keys 'fingerprint:visit'
-- returns {'FENCED'} | {'COMMITTED', number of deleted entries}
if not fence(ARGV[1], ARGV[2], tonumber(ARGV[3])) then return {'FENCED'} end
local keys = {}
for i = 4, #ARGV do keys[i - 3] = ARGV[i] end
return {'COMMITTED', run_many(keys, 'HDEL', P .. 'l')}
