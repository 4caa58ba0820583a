#!lua flags=allow-oom
-- replace_record: replace the record of a crawl by another text, if it is still the one seen.
-- KEYS  crawl
-- ARGV  ReplaceArgs
-- returns {'CHANGED'} | {'COMMITTED'}
if redis.call('HGET', KEYS[1], 'record') ~= ARGV[ReplaceArgs.seen] then return {'CHANGED'} end
redis.call('HSET', KEYS[1], 'record', ARGV[ReplaceArgs.new])
return {'COMMITTED'}
