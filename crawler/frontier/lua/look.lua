#!lua flags=no-writes,allow-oom
-- look: the records of queues, packed or not, and robots.txt of origins as it was shared, hosts of domains that a
-- budget took in, and whether that of the whole crawl took a host in. Reads only.
-- KEYS  meta
-- ARGV  'queues', 'robots', 'hosts' or 'taken in', then at most 256 names
-- returns for each queue its record (msgpack, see _queue.lua), for each origin its blob,
--       for each domain its hosts (see _hosts.lua), for each host 'yes'; '' for what is not there
local found = {}
for i = 2, #ARGV do
  local name, value = ARGV[i], nil
  if ARGV[1] == 'robots' then
    value = shelf_get('y', name) or ''
  elseif ARGV[1] == 'hosts' then
    value = shelf_get('n', name) or ''
  elseif ARGV[1] == 'taken in' then
    value = as_member('SISMEMBER', name) and 'yes' or ''
  else
    value = call('GET', P .. 'w:' .. name) or shelf_get('h', name) or ''
  end
  found[i - 1] = value
end
return found
