-- A pending URL. In its queue it is a member and a score. From its claim to its end, and while it waits for a retry, it is in
-- the hash u under the token of its delivery: 'score row domain member', with the row of its user (see _queue.lua).
-- member = a letter for the origin, a stamp, and the path: ! https://QUEUE, " http://QUEUE, # https://www.QUEUE,
-- $ http://www.QUEUE; further origins are listed in g:QUEUE; after a space the stamp and the whole URL follow.
-- What its request carries is JSON at the end of the stamp, behind a quotation mark (see codec.py).
-- score = order * 2^21 + (255 - depth) * 2^13 + seed * 2^12 + redirects * 2^8 + attempts * 2^4 + deliveries: the highest is
-- first, and the low bits have what else is known of the URL. Integers below 2^53, so doubles are exact.
-- So a URL that waits costs its path and some 20 bytes: a record in a hash beside the sorted set made it 305 for 67
-- characters, most of them pointers and what the name of the queue tells already. The member never changes, and what is
-- known changes by one ZADD. In exchange the engine knows no fingerprint of a URL that waits: claims are named by the
-- tokens of their deliveries, and a shorter path does not move it forward (its depth is in z, where there is a limit).
local function text_of(score) return string.format('%d', score) end

local ATTEMPT = 16
local with_delivery, with_attempt
do
  local COUNT_MAX = 15

  function with_delivery(score)
    return score % ATTEMPT < COUNT_MAX and score + 1 or score
  end

  function with_attempt(score)
    return math.floor(score / ATTEMPT) % ATTEMPT < COUNT_MAX and score + ATTEMPT or score
  end
end

local function is_given(score) return math.floor(score / 4096) % 2 == 1 end -- a seed

local function pack_record(score, row, domain, member)
  return score .. ' ' .. row .. ' ' .. domain .. ' ' .. member
end

-- The note in what a request carries, that it may have reached its server. Other requests have none.
local Sent = {BEGIN = '"{', NOTE = '"sent":true,'}

function Sent.noted(member)
  local plain = Sent.cleared(member)
  local at = string.find(plain, Sent.BEGIN, 2, true)
  return string.sub(plain, 1, at + 1) .. Sent.NOTE .. string.sub(plain, at + 2)
end

function Sent.cleared(member)
  local at = string.find(member, Sent.BEGIN .. Sent.NOTE, 2, true)
  return at and string.sub(member, 1, at + 1) .. string.sub(member, at + 2 + #Sent.NOTE) or member
end

-- score (text), row, domain, member
local function unpack_record(packed)
  return string.match(packed, '^(%S+) (%S+) (%S+) (.*)$')
end

local listed_member, listed_origin
do
  local ORIGINS_MAX, FIRST_LETTER = 90, 37

  -- The member of a URL whose origin has no fixed letter.
  function listed_member(queue, origin, path)
    local key = ctx.prefix .. 'g:' .. queue
    local letter = call('HGET', key, origin)
    if not letter then
      local n = call('HLEN', key) / 2
      if n >= ORIGINS_MAX then
        local stamp, rest = string.match(path, '^([^/]*)(.*)$')
        return ' ' .. stamp .. ' ' .. origin .. rest
      end
      letter = string.char(FIRST_LETTER + n)
      call('HSET', key, origin, letter, letter, origin)
    end
    return letter .. path
  end

  -- The origin of a member if it is listed; '' for others, whose origin is in the member.
  function listed_origin(queue, member)
    if string.byte(member) < FIRST_LETTER then return '' end
    return call('HGET', ctx.prefix .. 'g:' .. queue, string.sub(member, 1, 1)) or ''
  end
end
