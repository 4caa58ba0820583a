#!lua flags=allow-oom
-- join: enter a session into the member list under its node's name, by compare-and-set on who had the name.
-- KEYS  members, nodes (both '{crawl}:...')
-- ARGV  session, node, session seen under that name ('' for none), member blob
-- returns {'TAKEN', session} | {'COMMITTED'}
local held = redis.call('HGET', KEYS[2], ARGV[2]) or ''
if held ~= '' and held ~= ARGV[3] and held ~= ARGV[1] then return {'TAKEN', held} end
if held ~= '' and held ~= ARGV[1] then redis.call('HDEL', KEYS[1], held) end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[1])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[4])
return {'COMMITTED'}
