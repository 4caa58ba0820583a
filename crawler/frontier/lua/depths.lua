#!lua flags=no-writes,allow-oom
-- depths: the depth of pending URLs by the shortest path found so far, in a crawl with a limit on depth. Reads only.
-- KEYS  meta
-- ARGV  RunArgs, then at most 256 fingerprints
-- returns the depths, -1 for URLs that are not pending
local seen, found = seen_set(ARGV[RunArgs.run]), {}
for i = RunArgs.size + 1, #ARGV do
  found[i - RunArgs.size] = tonumber(call('HGET', depths_of(seen, ARGV[i]), ARGV[i]) or nil) or -1
end
return found
