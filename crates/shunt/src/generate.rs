//! `shunt generate`: man pages, completions and a configuration file, from the definitions of the
//! command line and of the options.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory as _, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::Cli;
use crate::exit::Exit;
use crate::{help, print, settings};

/// `shunt generate`.
#[derive(Args, Debug)]
pub(crate) struct Generate {
    /// The files to write.
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Write a man page for each command
    Man {
        /// Existing directory, such as /usr/local/share/man/man1
        #[arg(value_name = "DIRECTORY")]
        directory: PathBuf,
    },
    /// Print the completions of a shell
    Completions {
        /// The shell
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Print a configuration file of `shunt proxy` that names every option
    Configuration,
}

impl Generate {
    /// Writes the files.
    pub(crate) fn run(&self) -> Exit {
        match &self.what {
            What::Man { directory } => {
                let command = command_line();
                if let Err(error) = write_pages(&command, "shunt", directory) {
                    eprintln!("error: {}: {error}", directory.display());
                    return Exit::Failed;
                }
            }
            What::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(*shell, &mut command_line(), "shunt", &mut script);
                print(&String::from_utf8_lossy(&script));
            }
            What::Configuration => print(&settings::example::file()),
        }
        Exit::Done
    }
}

/// Returns the command line with every option.
fn command_line() -> Command {
    let mut command = help::arrange(Cli::command(), true);
    command.build();
    command
}

/// Writes the page of a command and those of its subcommands.
fn write_pages(command: &Command, name: &str, directory: &Path) -> io::Result<()> {
    std::fs::write(directory.join(format!("{name}.1")), page(command, name)?)?;
    for inner in command.get_subcommands() {
        if !inner.is_hide_set() && inner.get_name() != "help" {
            write_pages(inner, &format!("{name}-{}", inner.get_name()), directory)?;
        }
    }
    Ok(())
}

/// Returns the page of a command.
fn page(command: &Command, name: &str) -> io::Result<Vec<u8>> {
    let inner = command.get_subcommands().map(|inner| inner.get_name().to_owned());
    let inner: Vec<String> = inner.filter(|inner| inner != "help").collect();
    let renamed = command.clone().name(name.to_owned()).display_name(name.to_owned());
    let man = Man::new(renamed).title(name.to_uppercase()).source(version()).manual("Shunt");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if !inner.is_empty() {
        writeln!(page, ".SH COMMANDS")?;
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
            let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
            if inner.get_name() != "help" {
                writeln!(page, ".TP\n\\fB{name}-{}\\fR(1)\n{}", inner.get_name(), line(&about))?;
            }
        }
    }
    let ending = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    write_ending(&mut page, &ending)?;
    Ok(page)
}

fn version() -> String {
    format!("shunt {}", env!("CARGO_PKG_VERSION"))
}

/// Writes the end of a command's help, whose headings stand at the beginning of lines, with its
/// lines as they are.
fn write_ending(page: &mut Vec<u8>, text: &str) -> io::Result<()> {
    let mut is_open = false;
    for text in text.lines() {
        match text.strip_suffix(':').filter(|_| !text.starts_with(' ')) {
            Some(heading) => {
                let close = if is_open { ".fi\n" } else { "" };
                writeln!(page, "{close}.SH {}\n.nf", heading.to_uppercase())?;
                is_open = true;
            }
            None => writeln!(page, "{}", line(text))?,
        }
    }
    if is_open { writeln!(page, ".fi") } else { Ok(()) }
}

/// Returns a line of text as roff: no character of it is an order to the formatter.
fn line(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_with_its_options_and_exit_codes() {
        let command = command_line();
        let proxy = command.find_subcommand("proxy").unwrap();
        let page = String::from_utf8(page(proxy, "shunt-proxy").unwrap()).unwrap();
        for part in
            [".TH SHUNT-PROXY 1", "\\-\\-in\\-flight\\-max", ".SH EXAMPLES", ".SH EXIT CODES"]
        {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        let directory = tempfile::tempdir().unwrap();
        write_pages(&command, "shunt", directory.path()).unwrap();
        let visible = command.get_subcommands().filter(|inner| !inner.is_hide_set());
        for name in visible.map(Command::get_name).filter(|name| *name != "help") {
            let page = std::fs::read_to_string(directory.path().join(format!("shunt-{name}.1")));
            assert!(page.is_ok_and(|page| page.contains(".SH SYNOPSIS")), "{name}");
        }
        assert!(directory.path().join("shunt-multiget-serve.1").exists());
    }

    #[test]
    fn text_is_no_order_to_the_formatter() {
        assert_eq!(line(".so /etc/passwd"), "\\&.so /etc/passwd");
        assert_eq!(line("a\\fB --tls"), "a\\efB \\-\\-tls");
    }

    #[test]
    fn completions_know_commands_and_options() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command_line(), "shunt", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("log-level") && script.contains("contact-points"), "{shell}");
        }
    }
}
