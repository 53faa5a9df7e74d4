# Turn the part of #cloud-config that tests use into a shell script on stdout: write_files, bootcmd and
# runcmd. The host name goes to `hostname_file`. Other keys are ignored.

function indent(line) { return match(line, /[^ ]/) ? RSTART - 1 : -1 }

function trim(text) { sub(/^[ \t]+/, "", text); sub(/[ \t]+$/, "", text); return text }

function quote(text) { gsub(/'/, "'\\''", text); return "'" text "'" }

# The value of a plain or quoted YAML scalar.
function scalar(text,    first, out, i, c) {
    text = trim(text)
    first = substr(text, 1, 1)
    if (first == "'") {
        text = substr(text, 2)
        gsub(/''/, "\001", text)
        sub(/'.*/, "", text)
        gsub(/\001/, "'", text)
        return text
    }
    if (first == "\"") {
        for (i = 2; i <= length(text) && (c = substr(text, i, 1)) != "\""; i++) {
            if (c == "\\") {
                c = substr(text, ++i, 1)
                c = c == "n" ? "\n" : c == "t" ? "\t" : c
            }
            out = out c
        }
        return out
    }
    sub(/[ \t]+#.*/, "", text)
    return text
}

# A list in brackets as shell words.
function flow_words(text,    out, i, c, word, mark) {
    text = substr(text, 2)
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (mark == "" && (c == "," || c == "]")) {
            if (trim(word) != "") out = out quote(scalar(word)) " "
            word = ""
            if (c == "]") break
            continue
        }
        if (mark == "\"" && c == "\\") { word = word c substr(text, ++i, 1); continue }
        if (mark != "" && c == mark) mark = ""
        else if (mark == "" && trim(word) == "" && (c == "'" || c == "\"")) mark = c
        word = word c
    }
    return out
}

# The value `text` starts, with the lines after `at` that are indented deeper than `depth` where it goes
# on over several; `at` moves behind it.
function value(text, depth,    out, margin, folded, keep, line) {
    text = trim(text)
    if (text ~ /^[|>][-+]?[ ]*(#.*)?$/) {
        folded = text ~ /^>/
        keep = text !~ /^.-/
        margin = -1
        while (at < count && (lines[at + 1] ~ /^ *$/ || indent(lines[at + 1]) > depth)) {
            line = lines[++at]
            if (margin < 0 && line !~ /^ *$/) margin = indent(line)
            out = out substr(line, margin + 1) (folded ? " " : "\n")
        }
        if (folded) sub(/ +$/, "\n", out)
        else sub(/\n+$/, "\n", out)
        if (!keep) sub(/\n$/, "", out)
        return out
    }
    while (at < count && lines[at + 1] !~ /^ *$/ && indent(lines[at + 1]) > depth) text = text " " trim(lines[++at])
    return text
}

# One entry of runcmd as a line of shell.
function command(text, depth,    out) {
    if (text ~ /^\[/) return flow_words(value(text, depth))
    if (text ~ /^- /) {
        out = quote(scalar(substr(text, 3)))
        while (at < count && indent(lines[at + 1]) > depth) out = out " " quote(scalar(substr(trim(lines[++at]), 3)))
        return out
    }
    return text ~ /^[|>]/ ? value(text, depth) : scalar(value(text, depth))
}

function flush_file(    path, redirect) {
    if (!("path" in file)) return
    path = quote(file["path"])
    redirect = (file["append"] == "true" ? ">> " : "> ") path
    writes = writes "mkdir -p \"$(dirname " path ")\"\n"
    writes = writes "printf %s " quote(file["content"]) (file["encoding"] ~ /^b(ase)?64$/ ? " | base64 -d " : " ") redirect "\n"
    if ("permissions" in file) writes = writes "chmod " quote(file["permissions"]) " " path "\n"
    if ("owner" in file) writes = writes "chown " quote(file["owner"]) " " path "\n"
    delete file
}

function set_file(pair, depth,    colon, key, text) {
    colon = index(pair, ":")
    key = trim(substr(pair, 1, colon - 1))
    text = trim(substr(pair, colon + 1))
    file[key] = text ~ /^[|>]/ ? value(text, depth) : scalar(value(text, depth))
}

{ lines[++count] = $0 }

END {
    for (at = 1; at <= count; at++) {
        line = lines[at]
        if (line ~ /^ *(#.*)?$/) continue
        if (line ~ /^[A-Za-z_]+:/) {
            section = substr(line, 1, index(line, ":") - 1)
            if (section == "hostname") print scalar(substr(line, 10)) > hostname_file
            continue
        }
        depth = indent(line)
        text = trim(line)
        if (section == "runcmd" && text ~ /^- /) runs = runs command(trim(substr(text, 3)), depth) "\n"
        else if (section == "bootcmd" && text ~ /^- /) boots = boots command(trim(substr(text, 3)), depth) "\n"
        else if (section == "write_files" && text ~ /^- /) { flush_file(); set_file(substr(text, 3), depth + 2) }
        else if (section == "write_files") set_file(text, depth)
    }
    flush_file()
    printf "#!/bin/sh\n%s%s%s", boots, writes, runs
}
