//! What a simulated container does, read from its command: how long it runs, how it ends, what it writes. A reading of
//! the few shell words that examples use, not a shell: nothing is executed, and what is not understood runs for ever.

use std::time::Duration;

/// Shortest life of a container whose command ends by itself.
pub(crate) const SHORTEST_RUN: Duration = Duration::from_secs(1);

/// Programs that do something short and end.
const SHORT_PROGRAMS: &[&str] = &[
    "[", "awk", "basename", "cat", "cd", "chmod", "chown", "cp", "curl", "cut", "date", "df", "dirname", "du", "echo",
    "env", "export", "expr", "false", "find", "git", "grep", "head", "hostname", "id", "ip", "kubectl", "ln", "ls",
    "mkdir", "mktemp", "mv", "nslookup", "perl", "printenv", "printf", "ps", "pwd", "rm", "sed", "seq", "set", "shift",
    "sort", "stat", "sync", "sysctl", "tar", "test", "touch", "tr", "trap", "true", "uname", "uniq", "unset", "wc",
    "wget", "which", "whoami", "xargs", ":",
];
const SHELLS: &[&str] = &["sh", "bash", "ash", "dash", "zsh", "ksh"];

/// One thing that a container does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Takes time.
    Sleep(Duration),
    /// Writes a line.
    Write(String),
}

/// How a container's life goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Script {
    /// What it does, in order.
    pub(crate) steps: Vec<Step>,
    /// What comes after the last step.
    pub(crate) then: Then,
}

/// What comes after the last step of a [`Script`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// The container ends with this code.
    Exit(i32),
    /// It runs until it is stopped.
    RunForEver,
    /// The steps from this one on are repeated for ever.
    RepeatFrom(usize),
    /// The command does not say: there is none, or it is a program of which nothing is known.
    Unknown,
}

impl Script {
    /// Reads command and arguments of a container.
    pub(crate) fn read(command: &[String], args: &[String]) -> Self {
        let argv: Vec<&str> = command.iter().chain(args).map(String::as_str).collect();
        let mut reader = Reader { steps: Vec::new(), then: None };
        match argv.split_first() {
            None => {}
            // Without a command the arguments go to the image's own program.
            Some(_) if command.is_empty() && !is_known(argv[0]) => {}
            // A shell without a script waits for input that never comes, or runs a file of which nothing is known.
            Some((program, rest)) if SHELLS.contains(&base(program)) => {
                if let Some(text) = shell_text(rest) {
                    reader.script(text);
                }
            }
            Some(_) => reader.command(&argv),
        }
        let then = reader.then.unwrap_or(if reader.steps.is_empty() || argv.is_empty() {
            Then::Unknown
        } else {
            Then::Exit(0)
        });
        Self { steps: reader.steps, then }
    }

    /// How long it runs and the code that it ends with; `None` if it does not end by itself or does not say.
    pub(crate) fn end(&self) -> Option<(Duration, i32)> {
        match self.then {
            Then::Exit(code) => Some((self.pass().max(SHORTEST_RUN), code)),
            Then::RunForEver | Then::RepeatFrom(_) | Then::Unknown => None,
        }
    }

    fn pass(&self) -> Duration {
        self.steps.iter().map(duration).sum()
    }

    /// The lines written in the first `elapsed` of its life, each with its time since the start.
    pub(crate) fn lines(&self, elapsed: Duration) -> Vec<(Duration, &str)> {
        let mut lines = Vec::new();
        let mut at = Duration::ZERO;
        let mut from = 0;
        loop {
            let began = at;
            for step in &self.steps[from..] {
                if at > elapsed {
                    return lines;
                }
                match step {
                    Step::Sleep(time) => at += *time,
                    Step::Write(line) => lines.push((at, line.as_str())),
                }
            }
            match self.then {
                // A loop that takes no time would write without end; one turn of it is enough.
                Then::RepeatFrom(step) if at > began && at <= elapsed => from = step,
                _ => return lines,
            }
        }
    }

    /// When the next line after `elapsed` is written, if there will be one.
    pub(crate) fn next_line_after(&self, elapsed: Duration) -> Option<Duration> {
        let horizon = elapsed + self.pass() + SHORTEST_RUN;
        self.lines(horizon).into_iter().map(|(at, _)| at).find(|at| *at > elapsed)
    }
}

fn duration(step: &Step) -> Duration {
    match step {
        Step::Sleep(time) => *time,
        Step::Write(_) => Duration::ZERO,
    }
}

/// Whether a probe's command fails for certain: it is `false` or `exit N`, also inside a shell.
pub(crate) fn fails_for_certain(command: &[String]) -> bool {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let text = match words.split_first() {
        Some((program, rest)) if SHELLS.contains(&base(program)) => shell_text(rest).unwrap_or_default().to_owned(),
        _ => words.join(" "),
    };
    match text.split_whitespace().collect::<Vec<_>>()[..] {
        ["false"] | ["/bin/false"] => true,
        ["exit", code] => code.parse::<u8>().is_ok_and(|code| code != 0),
        _ => false,
    }
}

fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

fn is_known(program: &str) -> bool {
    let program = base(program);
    SHELLS.contains(&program) || SHORT_PROGRAMS.contains(&program) || matches!(program, "sleep" | "exit" | "tail")
}

/// The script after `-c`, also in `-ec` and the like.
fn shell_text<'a>(args: &[&'a str]) -> Option<&'a str> {
    let flag = args.iter().position(|arg| arg.starts_with('-') && !arg.starts_with("--") && arg.contains('c'))?;
    args.get(flag + 1).copied()
}

struct Reader {
    steps: Vec<Step>,
    then: Option<Then>,
}

impl Reader {
    fn script(&mut self, text: &str) {
        // Inside an `if`, a `case`, or a loop whose condition fails at once, nothing happens.
        let mut skipped_blocks = 0_usize;
        let mut endless_from: Option<usize> = None;
        for command in split(text) {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            let words = strip(&words);
            let Some((first, rest)) = words.split_first() else { continue };
            if skipped_blocks > 0 {
                match *first {
                    "if" | "case" | "while" | "until" => skipped_blocks += 1,
                    "fi" | "esac" | "done" => skipped_blocks -= 1,
                    _ => {}
                }
                continue;
            }
            match *first {
                "if" | "case" => skipped_blocks = 1,
                "while" if is_always(rest) => endless_from = Some(self.steps.len()),
                "until" if rest.first() == Some(&"false") => endless_from = Some(self.steps.len()),
                "while" | "until" => skipped_blocks = 1,
                "done" => {
                    if let Some(from) = endless_from {
                        self.then = Some(Then::RepeatFrom(from));
                        return;
                    }
                }
                "for" | "fi" | "esac" | "}" | ")" => {}
                _ => self.command(&words),
            }
            if self.then.is_some() {
                return;
            }
        }
        if let Some(from) = endless_from {
            self.then = Some(Then::RepeatFrom(from));
        } else if self.then.is_none() {
            self.then = Some(Then::Exit(0));
        }
    }

    /// One simple command.
    fn command(&mut self, words: &[&str]) {
        let words: Vec<&str> = words.iter().copied().skip_while(|word| is_assignment(word)).collect();
        let Some((program, args)) = words.split_first() else { return };
        match base(program) {
            "exec" | "nohup" | "time" => self.command(args),
            "sleep" => match args.first().and_then(|time| parse_sleep(time)) {
                Some(time) => self.steps.push(Step::Sleep(time)),
                None => self.then = Some(Then::RunForEver),
            },
            "exit" => self.then = Some(Then::Exit(args.first().and_then(|code| code.parse().ok()).unwrap_or(0))),
            "tail" if args.iter().any(|arg| matches!(*arg, "-f" | "-F" | "--follow")) => {
                self.then = Some(Then::RunForEver)
            }
            "tail" | "wait" => {}
            "echo" | "printf" => self.write(args),
            "false" if self.steps.is_empty() => self.steps_or_exit(1),
            program if SHORT_PROGRAMS.contains(&program) => {
                if self.steps.is_empty() {
                    // So that a lone `true` counts as a command that was understood.
                    self.steps.push(Step::Sleep(Duration::ZERO));
                }
            }
            _ => self.then = Some(Then::Unknown),
        }
    }

    fn steps_or_exit(&mut self, code: i32) {
        self.then = Some(Then::Exit(code));
    }

    fn write(&mut self, args: &[&str]) {
        let redirected = args.iter().any(|arg| arg.starts_with('>'));
        if redirected {
            self.steps.push(Step::Sleep(Duration::ZERO));
            return;
        }
        let words: Vec<&str> =
            args.iter().copied().skip_while(|arg| matches!(*arg, "-n" | "-e" | "-en" | "-ne")).collect();
        self.steps.push(Step::Write(words.join(" ").trim_end_matches("\\n").to_owned()));
    }
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=')
        .is_some_and(|(name, _)| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
}

fn is_always(condition: &[&str]) -> bool {
    matches!(condition, ["true" | ":" | "1" | "[1]", ..] | ["[", "1", "]", ..])
}

/// Without the words that only hold a script together.
fn strip<'a>(words: &[&'a str]) -> Vec<&'a str> {
    words.iter().copied().skip_while(|word| matches!(*word, "do" | "then" | "else" | "{" | "(" | "!")).collect()
}

/// `5`, `0.5`, `5s`, `2m`, `1h`, `1d`; `None` for `infinity` and what is not a time.
fn parse_sleep(text: &str) -> Option<Duration> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number: f64 = text[..text.len() - unit.len()].parse().ok()?;
    let seconds = match unit {
        "" | "s" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 86_400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

/// The simple commands of a script, as words without quotes. Comments are dropped.
fn split(text: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word = String::new();
    let mut quote = None;
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(end), c) if c == end => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                quoted = true;
            }
            (None, '\\') => word.extend(chars.next().filter(|next| *next != '\n')),
            (None, '#') if word.is_empty() => while chars.next_if(|next| *next != '\n').is_some() {},
            (None, ';' | '\n' | '&' | '|') => {
                end_word(&mut commands, &mut word, &mut quoted);
                commands.push(Vec::new());
            }
            (None, c) if c.is_whitespace() => end_word(&mut commands, &mut word, &mut quoted),
            (None, c) => word.push(c),
        }
    }
    end_word(&mut commands, &mut word, &mut quoted);
    commands.retain(|words| !words.is_empty());
    commands
}

fn end_word(commands: &mut [Vec<String>], word: &mut String, quoted: &mut bool) {
    if (!word.is_empty() || *quoted)
        && let Some(command) = commands.last_mut()
    {
        command.push(std::mem::take(word));
    }
    *quoted = false;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(argv: &[&str]) -> Script {
        let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
        Script::read(&argv, &[])
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn command_says_how_long_it_runs_and_how_it_ends() {
        for (argv, want) in [
            (&["sleep", "3"][..], Some((seconds(3), 0))),
            (&["/bin/sleep", "2m"], Some((seconds(120), 0))),
            (&["true"], Some((seconds(1), 0))),
            (&["false"], Some((seconds(1), 1))),
            (&["echo", "hi"], Some((seconds(1), 0))),
            (&["perl", "-Mbignum=bpi", "-wle", "print bpi(2000)"], Some((seconds(1), 0))),
            (&["sh", "-c", "exit 3"], Some((seconds(1), 3))),
            (&["/bin/sh", "-ec", "sleep 2; exit 4"], Some((seconds(2), 4))),
            (&["sh", "-c", "echo start && sleep 5 && echo done"], Some((seconds(5), 0))),
            (&["sh", "-c", "if test -e /x; then exit 1; fi; sleep 2"], Some((seconds(2), 0))),
            (&["sh", "-c", "until nslookup db; do echo waiting; sleep 2; done"], Some((seconds(1), 0))),
            (&["sh", "-c", "for i in 1 2; do\n  sleep 2\ndone"], Some((seconds(2), 0))),
            (&["sh", "-c", "# exit 9\nsleep 1"], Some((seconds(1), 0))),
        ] {
            assert_eq!(script(argv).end(), want, "{argv:?}");
        }
    }

    #[test]
    fn command_that_does_not_end_or_is_not_known_has_no_end() {
        for (argv, then) in [
            (&[][..], Then::Unknown),
            (&["nginx", "-g", "daemon off;"], Then::Unknown),
            (&["/server", "--leader-elect=true"], Then::Unknown),
            (&["sleep", "infinity"], Then::RunForEver),
            (&["tail", "-f", "/dev/null"], Then::RunForEver),
            (&["sh", "-c", "sleep 1; exec nginx"], Then::Unknown),
            (&["sh", "-c", "while true; do echo tick; sleep 5; done"], Then::RepeatFrom(0)),
            (&["bash"], Then::Unknown),
        ] {
            let script = script(argv);
            assert_eq!((script.end(), script.then), (None, then), "{argv:?}");
        }
    }

    #[test]
    fn arguments_without_a_command_belong_to_the_image_unless_they_are_a_command() {
        let args = |argv: &[&str]| argv.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(Script::read(&[], &args(&["--verbose=true"])).end(), None);
        assert_eq!(Script::read(&[], &args(&["sh", "-c", "exit 2"])).end(), Some((seconds(1), 2)));
        assert_eq!(Script::read(&[], &args(&["sleep", "4"])).end(), Some((seconds(4), 0)));
    }

    #[test]
    fn lines_come_at_their_times() {
        let once = script(&["sh", "-c", "echo \"a b\"; sleep 2; echo c"]);
        assert_eq!(once.lines(seconds(1)), [(seconds(0), "a b")]);
        assert_eq!(once.lines(seconds(9)), [(seconds(0), "a b"), (seconds(2), "c")]);
        assert_eq!(once.next_line_after(seconds(1)), Some(seconds(2)));
        assert_eq!(once.next_line_after(seconds(3)), None);
        let ticks = script(&["sh", "-c", "while true; do echo tick; sleep 5; done"]);
        assert_eq!(ticks.lines(seconds(11)).len(), 3);
        assert_eq!(ticks.next_line_after(seconds(11)), Some(seconds(15)));
        let busy = script(&["sh", "-c", "while true; do echo x; done"]);
        assert_eq!(busy.lines(seconds(100)).len(), 1);
        let redirected = script(&["sh", "-c", "echo logging > /opt/logs.txt"]);
        assert_eq!(redirected.lines(seconds(9)), []);
    }

    #[test]
    fn probe_fails_only_where_its_command_cannot_succeed() {
        let argv = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert!(fails_for_certain(&argv(&["false"])));
        assert!(fails_for_certain(&argv(&["sh", "-c", "exit 1"])));
        assert!(!fails_for_certain(&argv(&["sh", "-c", "exit 0"])));
        assert!(!fails_for_certain(&argv(&["cat", "/tmp/healthy"])));
        assert!(!fails_for_certain(&argv(&["sh", "-c", "if x; then exit 1; fi"])));
        assert!(!fails_for_certain(&[]));
    }
}
