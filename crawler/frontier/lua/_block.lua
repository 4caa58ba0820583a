-- A queue's URLs, in blocks: sorted sets that are small enough for the engine's packed encoding, without pointers.
-- q:QUEUE (the head) has the best URLs, further blocks b:QUEUE:ID the others, and t:QUEUE lists these by the highest score
-- that each may hold. A block that is in a file is a stub there, named 'ID FILE OFFSET LENGTH URLS'. q:QUEUE exists if and
-- only if the queue has URLs that can be handed out: no block overtakes a stub.
--
-- Claims take from the head; when it is empty the next block is renamed into its place. A full block is split in two,
-- but a URL that is worse than all others, as most are when a site is crawled by breadth, begins a new block behind it.
-- A path of more than 63 characters keeps its block from being packed unless zset-max-listpack-value allows it
-- (embedded: 512).
local BLOCK = 128 -- the engine's zset-max-listpack-entries
local ID_LENGTH = 9

local function head_of(queue) return ctx.prefix .. 'q:' .. queue end
local function index_of(queue) return ctx.prefix .. 't:' .. queue end
local function block_of(queue, id) return ctx.prefix .. 'b:' .. queue .. ':' .. id end
local function is_stub(id) return #id > ID_LENGTH end

-- Is this the name of a row of deferred URLs? Rows of users, and of URLs that are set aside, are queues in all that concerns
-- blocks.
local function is_row(queue) return string.find(queue, '|[^@!]') end

-- Rows with two reasons, 'depth:N' and 'hosts', stay in memory: single URLs are looked up in them.
local DEPTH, HOSTS = 'depth', 'hosts'
local function is_deep(reason) return string.sub(reason, 1, 6) == DEPTH .. ':' end

local lengthen, shorten
do
  local function long_of(queue) return ctx.prefix .. (is_row(queue) and 'long:deferred' or 'long') end

  local function stays(queue)
    local reason = string.match(queue, '|(.*)$')
    return reason and (reason == HOSTS or is_deep(reason))
  end

  function lengthen(queue)
    if not stays(queue) then call('ZINCRBY', long_of(queue), 1, queue) end
  end

  function shorten(queue)
    if stays(queue) then return end
    if tonumber(call('ZINCRBY', long_of(queue), -1, queue)) <= 0 then call('ZREM', long_of(queue), queue) end
  end
end

-- Take a URL out of a block, or of the head: the block may have become the head since the caller read it. id: nil or '' for the
-- head. A block that is empty then is listed no longer. False when the URL is in neither.
local function remove_url(queue, id, member)
  if call('ZREM', head_of(queue), member) == 1 then return true end
  if not id or id == '' then return false end
  local key = block_of(queue, id)
  if call('ZREM', key, member) == 0 then return false end
  if call('EXISTS', key) == 0 and call('ZREM', index_of(queue), id) == 1 then shorten(queue) end
  return true
end

local function count_spilled(queue, n)
  call('HINCRBY', ctx.meta_key, is_row(queue) and 'spilled_deferred' or 'spilled', n)
  call('HINCRBY', ctx.meta_key, 'moves', 1)
end

local next_id
do
  local LAST_ID = 999999999

  function next_id(r)
    add_to(r, BLOCKS, 1)
    return string.format('%09d', LAST_ID - r[BLOCKS])
  end
end

local function new_block(r, highest)
  local id = next_id(r)
  call('ZADD', index_of(r.queue), highest, id)
  lengthen(r.queue)
  return block_of(r.queue, id)
end

local put
do
  -- Make room for a score whose block is full. If it is not better than the worst of the queue, it gets a new block after it.
  -- Else the worse half of the block moves to a new one. Returns the key of the block that the score belongs to.
  local function make_room(r, key, id, score)
    local worst_id = call('ZRANGE', index_of(r.queue), 0, 0)[1]
    if worst_id == id and tonumber(score) <= tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) then
      return new_block(r, score)
    end
    local half = call('ZRANGE', key, 0, BLOCK / 2 - 1, 'WITHSCORES')
    local highest, moved = half[#half], {}
    for i = 1, #half, 2 do moved[i], moved[i + 1] = half[i + 1], half[i] end
    local behind = new_block(r, highest)
    call('ZADD', behind, unpack(moved))
    call('ZREMRANGEBYRANK', key, 0, BLOCK / 2 - 1)
    return tonumber(score) <= tonumber(highest) and behind or key
  end

  local function put_in_order(r, entries)
    local queue, index, put, i = r.queue, index_of(r.queue), 0, 1
    while i <= #entries do
      local score = entries[i]
      local found = call('ZRANGEBYSCORE', index, score, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
      local id, highest = found[1], found[2]
      local key = id and block_of(queue, id) or head_of(queue)
      if id and is_stub(id) then key = new_block(r, highest) end -- same bound as the stub; the newer one is found first
      local room = BLOCK - call('ZCARD', key)
      if room <= 0 then
        put = put + call('ZADD', make_room(r, key, id, score), score, entries[i + 1])
        i = i + 2
      else
        local next_best = call('ZREVRANGEBYSCORE', index, id and '(' .. highest or '+inf', '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
        local most, least, some = tonumber(highest) or math.huge, tonumber(next_best[2]) or -math.huge, {}
        repeat
          some[#some + 1], some[#some + 2] = entries[i], entries[i + 1]
          i, room = i + 2, room - 1
          local following = tonumber(entries[i])
        until i > #entries or room == 0 or following <= least or following > most
        put = put + call('ZADD', key, unpack(some))
      end
    end
    return put
  end

  -- Put URLs into a queue, given as {score, member, score, member, ...} with scores as text. Neighbours that belong in one
  -- block are added together.
  function put(r, entries)
    local is_one_block = r[BLOCKS] == 0 and Users.own_n(r) + #entries / 2 <= BLOCK
    add_urls(r, is_one_block and call('ZADD', head_of(r.queue), unpack(entries)) or put_in_order(r, entries))
  end
end

-- Make the next block the head if there is no head; false when the queue has none in memory.
local function promote(r)
  if r[BLOCKS] == 0 then return Users.own_n(r) ~= 0 end
  local index, head = index_of(r.queue), head_of(r.queue)
  while call('EXISTS', head) == 0 do
    local best = call('ZREVRANGE', index, 0, 0)[1]
    if not best then set(r, BLOCKS, 0) end
    if not best or is_stub(best) then return false end
    call('ZREM', index, best)
    shorten(r.queue)
    local key = block_of(r.queue, best)
    if call('EXISTS', key) == 1 then call('RENAME', key, head) end
  end
  return true
end

-- Take the best n URLs out of a queue: {member, score, member, score, ...}, best first.
local function take(r, n)
  local head = head_of(r.queue)
  local taken = call('ZPOPMAX', head, n)
  while r[BLOCKS] ~= 0 and promote(r) and #taken < 2 * n do
    for _, value in ipairs(call('ZPOPMAX', head, n - #taken / 2)) do taken[#taken + 1] = value end
  end
  add_urls(r, -#taken / 2)
  return taken
end

local look_ahead
do
  local SHORT = BLOCK / 2 -- with fewer URLs left, the next block should be in memory

  -- Note whether the next block has to be brought back from its file; true when it has. Not for rows, which nobody waits for.
  function look_ahead(queue, now)
    if is_row(queue) then return false end
    if call('ZCARD', head_of(queue)) < SHORT then
      local best = call('ZREVRANGE', index_of(queue), 0, 0)[1]
      if best and is_stub(best) then
        call('ZADD', ctx.prefix .. 'short', 'NX', now, queue)
        return true
      end
    end
    call('ZREM', ctx.prefix .. 'short', queue)
    return false
  end
end
