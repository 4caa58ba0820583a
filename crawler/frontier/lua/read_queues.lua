#!lua flags=no-writes,allow-oom
-- look: the records of queues, packed or not, and robots.txt of origins as it was shared, how many hosts of domains a
-- budget took in and whether it took a host in. Reads only.
-- KEYS  meta
-- ARGV  'queues', 'robots' or 'hosts', then at most 256 names
-- returns for each queue its record (msgpack, see _queue.lua), for each origin its blob,
--       for 'hosts' and a domain their number, for 'hosts' and 'domain label' 'yes' (see _admission.lua); '' for what is not
--       there
local found = {}
for i = 2, #ARGV do
  local name, value = ARGV[i], nil
  if ARGV[1] == 'robots' then
    value = compact_get('y', name) or ''
  elseif ARGV[1] == 'hosts' then
    value = compact_get('n', name)
    if value == '' then value = 'yes' end
    value = value or ''
  else
    value = call('GET', P .. 'w:' .. name) or compact_get('h', name) or ''
  end
  found[i - 1] = value
end
return found
