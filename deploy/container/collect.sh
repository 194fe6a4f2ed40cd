#!/bin/sh
# Copies programs into the root directory of an image, with the libraries that they load: collect.sh ROOT PROGRAM...
set -eu
root=$1
shift
for program; do
  loaded=$(ldd "$program" | grep -o '/[^ ]*')
  for file in "$program" $loaded; do
    mkdir -p "$root$(dirname "$file")"
    cp --dereference "$file" "$root$file"
  done
done
mkdir -p "$root/etc/ssl/certs" "$root/tmp" "$root/var/lib/guild"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
echo 'guild:x:65532:65532:Guild:/var/lib/guild:/sbin/nologin' > "$root/etc/passwd"
echo 'guild:x:65532:' > "$root/etc/group"
chmod 1777 "$root/tmp"
chown 65532:65532 "$root/var/lib/guild"
chmod 0700 "$root/var/lib/guild"
