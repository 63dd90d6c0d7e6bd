-- Named queries in SQL: each begins after a line with its name. They return what those of `snb_reads.gq` return.

-- is1
SELECT p.firstName, p.lastName, p.birthday, p.locationIP, p.browserUsed, l.dst, p.gender, p.creationDate
FROM person p
JOIN livesin l ON l.src = p.nr
WHERE p.nr = $id

-- is2
SELECT m.nr AS n, m.content, m.imageFile, m.creationDate AS made, o.dst, p.nr, p.firstName, p.lastName
FROM hascreator h
JOIN message m ON m.nr = h.src
JOIN rootpost o ON o.src = m.nr
JOIN hascreator c ON c.src = o.dst
JOIN person p ON p.nr = c.dst
WHERE h.dst = $id
ORDER BY made DESC, n LIMIT 10

-- is3
WITH f AS (SELECT b AS nr, made FROM friends WHERE a = $id)
SELECT p.nr, p.firstName, p.lastName, f.made
FROM f
JOIN person p USING (nr)
ORDER BY f.made DESC, p.nr

-- is4
SELECT creationDate, content, imageFile
FROM message
WHERE nr = $id

-- is5
SELECT p.nr, p.firstName, p.lastName
FROM hascreator h
JOIN person p ON p.nr = h.dst
WHERE h.src = $id

-- is6
SELECT f.nr, f.title, p.nr, p.firstName, p.lastName
FROM rootpost o
JOIN containerof c ON c.dst = o.dst
JOIN forum f ON f.nr = c.src
JOIN hasmoderator m ON m.src = f.nr
JOIN person p ON p.nr = m.dst
WHERE o.src = $id

-- is7
SELECT m.nr, m.content, m.creationDate AS made, p.nr, p.firstName, p.lastName, EXISTS (SELECT 1
FROM friends k
JOIN hascreator a ON a.dst = k.a
WHERE a.src = $id AND k.b = p.nr)
FROM replyof r
JOIN message m ON m.nr = r.src
JOIN hascreator h ON h.src = m.nr
JOIN person p ON p.nr = h.dst
WHERE r.dst = $id
ORDER BY made DESC, p.nr, m.nr

-- ic2
WITH f AS (SELECT b AS nr, made FROM friends WHERE a = $id)
SELECT p.nr, p.firstName, p.lastName, m.nr AS n, m.content, m.imageFile, m.creationDate AS made
FROM f
JOIN person p USING (nr)
JOIN hascreator h ON h.dst = p.nr
JOIN message m ON m.nr = h.src
WHERE m.creationDate <= $max
ORDER BY made DESC, n LIMIT 20

-- ic4
WITH f AS (SELECT b AS nr, made FROM friends WHERE a = $id)
SELECT t.name, count(*) AS n
FROM f
JOIN person p USING (nr)
JOIN hascreator h ON h.dst = p.nr
JOIN message m ON m.nr = h.src
JOIN hastag x ON x.src = m.nr
JOIN tag t ON t.nr = x.dst
WHERE m.post AND m.creationDate < $until
GROUP BY t.name HAVING min(m.creationDate) >= $since
ORDER BY n DESC, t.name LIMIT 10

-- ic5
WITH one AS (SELECT b FROM friends WHERE a = $id),
  f AS (SELECT b AS nr FROM one UNION SELECT k.b FROM one JOIN friends k ON k.a = one.b WHERE k.b <> $id)
SELECT o.title, o.nr, count(*) AS n
FROM f
JOIN hasmember b ON b.dst = f.nr
JOIN forum o ON o.nr = b.src
JOIN containerof c ON c.src = o.nr
JOIN hascreator h ON h.src = c.dst AND h.dst = f.nr
WHERE b.joinDate > $since
GROUP BY o.title, o.nr
ORDER BY n DESC, o.nr LIMIT 20

-- ic6
WITH one AS (SELECT b FROM friends WHERE a = $id),
  f AS (SELECT b AS nr FROM one UNION SELECT k.b FROM one JOIN friends k ON k.a = one.b WHERE k.b <> $id)
SELECT t.name, count(*) AS n
FROM f
JOIN person p USING (nr)
JOIN hascreator h ON h.dst = p.nr
JOIN message m ON m.nr = h.src
JOIN hastag y ON y.src = m.nr
JOIN tag k ON k.nr = y.dst
JOIN hastag x ON x.src = m.nr
JOIN tag t ON t.nr = x.dst
WHERE m.post AND k.name = $tag AND t.name <> $tag
GROUP BY t.name
ORDER BY n DESC, t.name LIMIT 10

-- ic8
SELECT p.nr, p.firstName, p.lastName, m.creationDate AS made, m.nr AS n, m.content
FROM hascreator a
JOIN replyof r ON r.dst = a.src
JOIN message m ON m.nr = r.src
JOIN hascreator h ON h.src = m.nr
JOIN person p ON p.nr = h.dst
WHERE a.dst = $id
ORDER BY made DESC, n LIMIT 20

-- ic9
WITH one AS (SELECT b FROM friends WHERE a = $id),
  f AS (SELECT b AS nr FROM one UNION SELECT k.b FROM one JOIN friends k ON k.a = one.b WHERE k.b <> $id)
SELECT p.nr, p.firstName, p.lastName, m.nr AS n, m.content, m.imageFile, m.creationDate AS made
FROM f
JOIN person p USING (nr)
JOIN hascreator h ON h.dst = p.nr
JOIN message m ON m.nr = h.src
WHERE m.creationDate < $max
ORDER BY made DESC, n LIMIT 20

-- ic11
WITH one AS (SELECT b FROM friends WHERE a = $id),
  f AS (SELECT b AS nr FROM one UNION SELECT k.b FROM one JOIN friends k ON k.a = one.b WHERE k.b <> $id)
SELECT p.nr, p.firstName, p.lastName, c.name, w.workFrom
FROM f
JOIN person p USING (nr)
JOIN workat w ON w.src = p.nr
JOIN company c ON c.nr = w.dst
JOIN companyin i ON i.src = c.nr
JOIN country l ON l.nr = i.dst
WHERE w.workFrom < $year AND l.name = $country
ORDER BY w.workFrom, p.nr, c.name DESC LIMIT 10
