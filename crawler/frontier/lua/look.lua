#!lua flags=no-writes,allow-oom
-- look: the records of queues, packed or not, and robots.txt of origins as it was shared. Reads only.
-- KEYS  meta
-- ARGV  'queues' or 'robots', then at most 256 names
-- returns for each queue a flat list of names and values, {} for an unknown one; for each origin the blob, '' for none
--@include _fence _shelf _idle
local found = {}
for i = 2, #ARGV do
  local name, value = ARGV[i], nil
  if ARGV[1] == 'robots' then
    value = shelf_get('y', name) or ''
  else
    value = call('HGETALL', P .. 'w:' .. name)
    local packed = #value == 0 and shelf_get('h', name)
    if packed then value = unpack_queue(packed) end
  end
  found[i - 1] = value
end
return found
