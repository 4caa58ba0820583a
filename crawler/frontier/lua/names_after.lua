#!lua flags=no-writes,allow-oom
-- names_after: the names of queues that come after a name, in the order of their bytes. Reads only.
-- KEYS  meta
-- ARGV  NamesArgs: a name ('': from the start), how many at most (up to 256)
-- returns the names; fewer only when there are no more
local after, most = ARGV[NamesArgs.after], math.min(tonumber(ARGV[NamesArgs.most]), 256)
local found, first = {}, names_from(after)
while first and #found < most do
  for _, name in ipairs(call('ZRANGEBYLEX', names_key(first), '(' .. after, '+', 'LIMIT', 0, most - #found)) do
    found[#found + 1] = name
  end
  first = call('ZRANGEBYLEX', blocks_key(), '(' .. first, '+', 'LIMIT', 0, 1)[1]
end
return found
