#!lua flags=allow-oom
-- release: the owner lets go of the partition. Needs the fence. The epoch stays, so that the next one is higher.
-- KEYS  meta
-- ARGV  session, epoch, now (ms)
-- returns {'FENCED'} | {'COMMITTED'}
if not fence(ARGV) then return {'FENCED'} end
call('HSET', M, 'session', '')
return {'COMMITTED'}
