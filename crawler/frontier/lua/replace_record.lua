#!lua flags=allow-oom
-- replace_record: replace the record of a crawl by another text, if it is still the one seen.
-- KEYS  crawl
-- ARGV  record seen, new record
-- returns {'CHANGED'} | {'COMMITTED'}
if redis.call('HGET', KEYS[1], 'record') ~= ARGV[1] then return {'CHANGED'} end
redis.call('HSET', KEYS[1], 'record', ARGV[2])
return {'COMMITTED'}
