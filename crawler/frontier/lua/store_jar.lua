#!lua
-- store_jar: keep the cookies of a site and session, sealed by their owner, for the next owner. Needs the fence. Refused when out
-- of memory; beyond so many sessions of a partition, further ones are not kept.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), name of the jar, its sealed content ('' removes it), how many a partition may have
-- returns {'FENCED'} | {'COMMITTED'} | {'GONE'} (there is no room)
-- jars: hash 'site session' -> sealed content.
if not fence(ARGV) then return {'FENCED'} end
local key, name, content = ctx.prefix .. 'jars', ARGV[FenceArgs.size + 1], ARGV[FenceArgs.size + 2]
if content == '' then
  call('HDEL', key, name)
  return {'COMMITTED'}
end
if call('HEXISTS', key, name) == 0 and call('HLEN', key) >= tonumber(ARGV[FenceArgs.size + 3]) then return {'GONE'} end
call('HSET', key, name, content)
return {'COMMITTED'}
