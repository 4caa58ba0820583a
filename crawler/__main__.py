from crawler.cli.main import program

program()
