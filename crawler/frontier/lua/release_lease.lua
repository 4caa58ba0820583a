#!lua flags=allow-oom
-- release_lease: give up the lease of a partition. Needs the fence. The epoch stays, so that the next one is higher.
-- KEYS  meta
-- ARGV  session, epoch, now (ms)
-- returns {'FENCED'} | {'COMMITTED'}
if not fence(ARGV) then return {'FENCED'} end
call('HSET', ctx.meta_key, 'session', '')
return {'COMMITTED'}
